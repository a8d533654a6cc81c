// An operation from being asked for to its end: progress, what it says, result or error.
import { h } from "vue";
import { moment, now, pill, span, written } from "holdfast";

function plain(value) {
  return value !== null && typeof value === "object" ? JSON.stringify(value) : written("text", value);
}

export default {
  props: { operation: Object, hideResult: Boolean },
  render() {
    void now.value;
    const it = this.operation;
    if (!it) return h("div", { class: "operation-none" });
    const at = it.progress;
    const began = new Date(it.started || it.created).getTime();
    const until = it.ended ? new Date(it.ended).getTime() : now.value;
    const over = !["PENDING", "RUNNING"].includes(it.state);
    const result = it.result && !this.hideResult ? Object.entries(it.result) : [];
    return h("div", { class: "operation", "aria-live": "polite" }, [
      h("div", { class: "operation-head" }, [
        pill(it.state),
        h("strong", {}, `${it.kind} of ${it.job}`),
        h("span", { class: "muted" }, [`by ${it.asked_by}, `, moment(it.created, "time")]),
        h("span", { class: "muted num push" }, span((until - began) / 1000)),
      ]),
      over
        ? null
        : h("div", { class: "progress" }, [
            h("progress", at && at.total ? { value: at.done, max: at.total, "aria-label": "Progress" } : { "aria-label": "Progress" }),
            h("span", { class: "muted" }, at ? `${at.what} ${at.total ? `${at.done} of ${at.total}` : ""}` : "waiting for its process"),
          ]),
      it.lines.length ? h("pre", { class: "lines", tabindex: 0, "aria-label": "What it says" }, it.lines.join("\n")) : null,
      it.error
        ? h("div", { class: "notice tone-bad", role: "alert" }, [
            h("strong", { class: "mono" }, it.error.name),
            h("p", {}, it.error.message),
            it.error.fix ? h("p", { class: "fix" }, [h("b", {}, "Fix: "), it.error.fix]) : null,
          ])
        : null,
      result.length
        ? h(
            "dl",
            { class: "facts" },
            result.map(([name, value]) =>
              h("div", { key: name }, [h("dt", {}, name.replaceAll("_", " ")), h("dd", { class: "mono" }, plain(value))]),
            ),
          )
        : null,
    ]);
  },
};
