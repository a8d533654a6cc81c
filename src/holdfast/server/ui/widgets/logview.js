// The end of a log; follows it, unless its reader has scrolled up or told it not to.
import { h, nextTick } from "vue";

const MOST = 2000;

export default {
  props: { first: { type: Array, default: () => [] }, follow: { type: Boolean, default: true } },
  data() {
    return { lines: this.first.map((text, at) => ({ at, text })), count: this.first.length };
  },
  watch: {
    follow(wanted) {
      if (wanted) this.toEnd();
    },
  },
  mounted() {
    this.toEnd();
  },
  methods: {
    append(texts) {
      const added = texts.map((text) => ({ at: this.count++, text }));
      this.lines = [...this.lines, ...added].slice(-MOST);
      if (this.follow) this.toEnd();
    },
    replace(texts) {
      this.lines = [];
      this.append(texts);
    },
    toEnd() {
      nextTick(() => {
        this.$el.scrollTop = this.$el.scrollHeight;
      });
    },
    tone(text) {
      if (/\b(ERROR|FATAL|Traceback|Exception)\b/.test(text)) return "bad";
      return /\bWARN(ING)?\b/.test(text) ? "warn" : "";
    },
  },
  render() {
    return h(
      "div",
      { class: "log", tabindex: 0, role: "log", "aria-label": "Log", "aria-live": "off" },
      this.lines.length
        ? this.lines.map((line) => h("div", { key: line.at, class: this.tone(line.text) }, line.text || "\u00a0"))
        : h("p", { class: "empty-line" }, "Nothing has been written yet."),
    );
  },
};
