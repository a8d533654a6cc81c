// An error as it is: its name, what happened, and what to do. Or a word of calm.
import { h } from "vue";

export default {
  props: { trouble: Object, reasons: { type: Array, default: () => [] }, tone: { type: String, default: "bad" }, title: String },
  render() {
    if (this.trouble)
      return h("div", { class: ["notice", `tone-${this.tone}`], role: "alert" }, [
        h("strong", { class: "mono" }, this.trouble.name),
        h("p", {}, this.trouble.message),
        this.trouble.fix ? h("p", { class: "fix" }, [h("b", {}, "Fix: "), this.trouble.fix]) : null,
      ]);
    if (!this.title && !this.reasons.length) return h("div", { class: "notice-none" });
    return h("div", { class: ["notice", `tone-${this.tone}`], role: "status" }, [
      this.title ? h("strong", {}, this.title) : null,
      ...this.reasons.map((reason) => h("p", { key: reason }, reason)),
    ]);
  },
};
