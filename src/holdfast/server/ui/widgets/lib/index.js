// What all widgets share: how numbers, sizes and times are written, and the clock that ticks.
// Everything here returns text; nothing returns HTML.
import { ref, h } from "vue";

export const NONE = "–";

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const oneDigit = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export function number(value) {
  return value === null || value === undefined ? NONE : grouped.format(value);
}

export function rate(value) {
  if (value === null || value === undefined) return NONE;
  return value < 10 && value > 0 ? oneDigit.format(value) : grouped.format(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (Math.abs(value) >= 1000 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${at === 0 ? grouped.format(value) : oneDigit.format(value)} ${units[at]}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return NONE;
  if (value < 0) return `−${seconds(-value)}`;
  if (value < 0.1) return `${Math.round(value * 1000)} ms`;
  if (value < 100) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  return span(value);
}

// Two units at most: nobody needs the seconds of a week.
export function span(value) {
  if (value === null || value === undefined) return NONE;
  const whole = Math.max(0, Math.floor(value));
  const parts = [
    [Math.floor(whole / 86400), "d"],
    [Math.floor((whole % 86400) / 3600), "h"],
    [Math.floor((whole % 3600) / 60), "m"],
    [whole % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  if (first === -1) return "0 s";
  return parts
    .slice(first, first + 2)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(" ");
}

// In the viewer's own zone; the title has the zone, and UTC besides.
const day = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "2-digit" });
const hour = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

export function clock(iso) {
  if (!iso) return NONE;
  const at = new Date(iso);
  const today = day.format(at) === day.format(new Date(now.value));
  return today ? hour.format(at) : `${day.format(at)}, ${hour.format(at)}`;
}

export function fullTime(iso) {
  return iso ? `${full.format(new Date(iso))}\n${new Date(iso).toISOString()}` : "";
}

// One clock for all: what ages ticks together.
export const now = ref(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);
document.addEventListener("visibilitychange", () => {
  now.value = Date.now();
});

export function age(iso) {
  return iso ? span((now.value - new Date(iso).getTime()) / 1000) : NONE;
}

// A growth: with its sign.
function change(write, value) {
  if (value === null || value === undefined) return NONE;
  return `${value > 0 ? "+" : value < 0 ? "−" : "±"}${write(Math.abs(value))}`;
}

export function written(kind, value) {
  switch (kind) {
    case "number":
      return number(value);
    case "rate":
      return rate(value);
    case "bytes":
      return bytes(value);
    case "change":
      return change(number, value);
    case "change-bytes":
      return change(bytes, value);
    case "seconds":
      return seconds(value);
    case "span":
      return span(value);
    case "time":
      return clock(value);
    case "age":
      return `${age(value)} ago`;
    default:
      return value === null || value === undefined || value === "" ? NONE : String(value);
  }
}

// States and verdicts: a tone for the colour, and a shape for those who do not see it.
const TONES = {
  RUNNING: ["good", "play"],
  COMMITTED: ["good", "check"],
  SUCCEEDED: ["good", "check"],
  FINISHED: ["calm", "check"],
  alive: ["good", "check"],
  ok: ["good", "check"],
  restored: ["good", "check"],
  STARTING: ["busy", "dots"],
  PENDING: ["busy", "dots"],
  CREATED: ["calm", "dots"],
  RESTARTING: ["warn", "again"],
  STOPPING: ["warn", "dots"],
  INTERRUPTED: ["warn", "cut"],
  CANCELLING: ["warn", "cut"],
  CANCELLED: ["calm", "cut"],
  warning: ["warn", "mark"],
  "starts empty": ["calm", "ring"],
  dropped: ["warn", "cut"],
  migrated: ["busy", "again"],
  SUSPENDED: ["calm", "pause"],
  CANCELED: ["calm", "cut"],
  stopped: ["calm", "pause"],
  FAILED: ["bad", "cross"],
  DEAD: ["bad", "cross"],
  failed: ["bad", "cross"],
  gone: ["bad", "cross"],
  "not registered": ["warn", "mark"],
  refused: ["bad", "cross"],
};

const SHAPES = {
  play: "M5 3.5v9l7-4.5z",
  check: "M3.5 8.5l3 3 6-7",
  cross: "M4 4l8 8M12 4l-8 8",
  dots: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  again: "M12.5 8a4.5 4.5 0 1 1-1.3-3.2M12.5 2.5v3h-3",
  cut: "M3.5 8h9",
  mark: "M8 3.5v5.5M8 12.5h.01",
  ring: "M8 4a4 4 0 1 0 .01 0",
  pause: "M5.5 4v8M10.5 4v8",
};

export function toneOf(word) {
  return (TONES[word] || ["calm", "ring"])[0];
}

// A pill: colour, shape and word.
export function pill(word, title) {
  if (!word) return NONE;
  const [tone, shape] = TONES[word] || ["calm", "ring"];
  return h("span", { class: ["pill", `tone-${tone}`], title }, [
    h("svg", { class: "glyph", viewBox: "0 0 16 16", "aria-hidden": "true" }, [
      h("path", { d: SHAPES[shape], class: shape === "play" ? "filled" : "" }),
    ]),
    h("span", {}, String(word).toLowerCase()),
  ]);
}

export function moment(iso, kind) {
  if (!iso) return NONE;
  return h(
    "time",
    { datetime: iso, title: fullTime(iso) },
    kind === "age" ? `${age(iso)} ago` : kind === "uptime" ? age(iso) : clock(iso),
  );
}

// Bars as high as the numbers, in a box that never changes its size.
export function spark(values, label) {
  const width = 96;
  const height = 22;
  const most = Math.max(1, ...values);
  const shown = values.slice(-20);
  const step = width / 20;
  return h(
    "svg",
    {
      class: "spark",
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-label": label,
    },
    shown.map((value, at) => {
      const tall = value > 0 ? Math.max(1.5, (value / most) * (height - 2)) : 1;
      return h("rect", {
        x: (20 - shown.length + at) * step,
        y: height - tall,
        width: step - 1.2,
        height: tall,
        class: value > 0 ? "" : "zero",
      });
    }),
  );
}
