// Names and values, side by side; values keep their places when they change.
import { h } from "vue";
import { moment, now, pill, written } from "holdfast";

export default {
  props: { items: { type: Array, default: () => [] }, big: Boolean },
  render() {
    void now.value;
    return h(
      "dl",
      { class: ["facts", this.big ? "big" : ""] },
      this.items.map((item) =>
        h("div", { key: item.label, class: item.wide ? "wide" : "" }, [
          h("dt", {}, item.label),
          h("dd", { class: item.kind === "mono" ? "mono" : "", title: item.title }, [
            item.kind === "state"
              ? pill(item.value)
              : ["time", "age", "uptime"].includes(item.kind)
                ? moment(item.value, item.kind)
                : item.href
                  ? h("a", { href: item.href }, written(item.kind, item.value))
                  : written(item.kind, item.value),
            item.note ? h("span", { class: "note" }, item.note) : null,
          ]),
        ]),
      ),
    );
  },
};
