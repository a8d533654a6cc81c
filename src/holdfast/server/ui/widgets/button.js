// A button that says why it does not work, and stays reachable while it does not.
import { h } from "vue";

export default {
  props: { label: String, look: { type: String, default: "" }, reason: { type: String, default: "" }, busy: Boolean },
  emits: ["press"],
  render() {
    const off = this.reason || this.busy;
    return h(
      "button",
      {
        type: "button",
        class: ["btn", this.look],
        "aria-disabled": off ? "true" : undefined,
        title: this.reason || undefined,
        onClick: () => off || this.$emit("press"),
      },
      [
        this.busy ? h("span", { class: "spinner", "aria-hidden": "true" }) : null,
        this.label,
        this.reason ? h("span", { class: "unseen" }, ` (${this.reason})`) : null,
      ],
    );
  },
};
