// A table whose rows are patched in place: a row keeps its element as long as its key is there.
import { h } from "vue";
import { moment, now, pill, spark, written, NONE } from "holdfast";

const NUMERIC = new Set(["number", "rate", "bytes", "seconds", "span", "change", "change-bytes"]);

export default {
  props: {
    caption: String,
    columns: { type: Array, default: () => [] },
    rows: { type: Array, default: () => [] },
    empty: { type: String, default: "Nothing here." },
    chosen: { type: String, default: "" },
    narrow: { type: String, default: "cards" },
  },
  emits: ["act"],
  methods: {
    act(action, key) {
      this.$emit("act", { action, key });
    },
    cell(column, row) {
      const value = row[column.name];
      switch (column.kind) {
        case "state":
          return pill(value, row[`${column.name}_title`]);
        case "time":
        case "age":
        case "uptime":
          return moment(value, column.kind);
        case "spark":
          return spark(value || [], `${column.label} of ${row.key}`);
        case "actions":
          return h(
            "div",
            { class: "row-actions" },
            (value || []).map((each) => this.button(each, row)),
          );
        case "trouble":
          return value
            ? h("span", { class: "trouble-cell" }, [
                h("strong", {}, value.name),
                h("span", {}, ` ${value.message}`),
              ])
            : NONE;
        default: {
          const text = written(column.kind, value);
          const href = column.href && row[column.href];
          if (href) return h("a", { href }, text);
          if (column.act && value !== null && value !== undefined && value !== "")
            return h(
              "button",
              { type: "button", class: "link", onClick: () => this.act(column.act, row.key) },
              text,
            );
          return h("span", { title: column.kind === "mono" ? text : undefined }, text);
        }
      }
    },
    button(each, row) {
      return h(
        "button",
        {
          type: "button",
          key: each.name,
          class: ["small", each.danger ? "danger" : ""],
          "aria-disabled": each.reason ? "true" : undefined,
          title: each.reason || undefined,
          "aria-label": `${each.label}: ${row.label || row.key}`,
          onClick: () => each.reason || this.act(each.name, row.key),
        },
        each.label,
      );
    },
  },
  render() {
    void now.value; // ages tick
    const columns = this.columns;
    const head = h(
      "tr",
      {},
      columns.map((column) =>
        h(
          "th",
          {
            scope: "col",
            class: [NUMERIC.has(column.kind) ? "num" : "", column.low ? "low" : ""],
            style: column.width ? { width: column.width } : undefined,
          },
          column.kind === "actions" ? h("span", { class: "unseen" }, column.label) : column.label,
        ),
      ),
    );
    const body = this.rows.map((row) =>
      h(
        "tr",
        { key: row.key, class: [row.key === this.chosen ? "chosen" : "", row.tone || ""] },
        columns.map((column) =>
          h(
            column.head ? "th" : "td",
            {
              scope: column.head ? "row" : undefined,
              "data-label": column.label,
              class: [
                `kind-${column.kind || "text"}`,
                NUMERIC.has(column.kind) ? "num" : "",
                column.low ? "low" : "",
              ],
            },
            [this.cell(column, row)],
          ),
        ),
      ),
    );
    return h("div", { class: ["table-box", `narrow-${this.narrow}`], tabindex: 0, role: "region", "aria-label": this.caption }, [
      h("table", {}, [
        h("caption", { class: "unseen" }, this.caption),
        h("thead", {}, [head]),
        h("tbody", {}, body),
      ]),
      this.rows.length ? null : h("p", { class: "empty-line" }, this.empty),
    ]);
  },
};
