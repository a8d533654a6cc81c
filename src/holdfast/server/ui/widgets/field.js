// One field of a form, made of the browser's own controls: reachable, labelled, and right on
// phones. It keeps what is typed; the server's value counts only when that is another one.
import { h } from "vue";

let count = 0;

export default {
  props: {
    label: String,
    kind: { type: String, default: "text" },
    value: { type: [String, Number, Boolean], default: "" },
    options: { type: Array, default: () => [] },
    hint: { type: String, default: "" },
    placeholder: { type: String, default: "" },
    list: { type: Array, default: () => [] },
    least: Number,
    most: Number,
    focus: Boolean,
    hideLabel: Boolean,
  },
  emits: ["change", "enter"],
  data() {
    return { held: this.value, id: `field-${++count}` };
  },
  watch: {
    value(value) {
      this.held = value;
    },
  },
  mounted() {
    if (this.focus) setTimeout(() => this.$el.querySelector("input, select, textarea")?.focus(), 80);
  },
  methods: {
    set(value) {
      this.held = value;
      this.$emit("change", value);
    },
    typed(event) {
      const value = event.target.value;
      this.held = value;
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => this.$emit("change", value), 250);
    },
    now() {
      clearTimeout(this.waiting);
      this.$emit("change", this.held);
    },
    key(event) {
      if (event.key !== "Enter" || (this.kind === "area" && !(event.ctrlKey || event.metaKey))) return;
      event.preventDefault();
      this.now();
      this.$emit("enter");
    },
    control() {
      const common = { id: this.id, "aria-describedby": this.hint ? `${this.id}-hint` : undefined };
      if (this.kind === "select")
        return h(
          "select",
          { ...common, onChange: (event) => this.set(event.target.value) },
          this.options.map((each) =>
            h("option", { value: each.value, key: each.value, selected: each.value === this.held }, each.label),
          ),
        );
      const typing = {
        ...common,
        value: this.held,
        placeholder: this.placeholder || undefined,
        spellcheck: "false",
        autocomplete: "off",
        onInput: this.typed,
        onChange: this.now,
        onKeydown: this.key,
      };
      if (this.kind === "area") return h("textarea", { ...typing, rows: 5, class: "mono" });
      const suggestions = this.list.length ? `${this.id}-list` : undefined;
      return [
        h("input", {
          ...typing,
          type: this.kind,
          min: this.least,
          max: this.most,
          list: suggestions,
        }),
        suggestions
          ? h("datalist", { id: suggestions }, this.list.map((each) => h("option", { value: each, key: each })))
          : null,
      ];
    },
  },
  render() {
    const hint = this.hint ? h("p", { class: "hint", id: `${this.id}-hint` }, this.hint) : null;
    if (this.kind === "check")
      return h("div", { class: "field check" }, [
        h("label", {}, [
          h("input", {
            type: "checkbox",
            checked: this.held,
            onChange: (event) => this.set(event.target.checked),
          }),
          h("span", {}, this.label),
        ]),
        hint,
      ]);
    if (this.kind === "radio")
      return h("fieldset", { class: "field" }, [
        h("legend", {}, this.label),
        ...this.options.map((each) =>
          h("label", { class: "choice", key: each.value }, [
            h("input", {
              type: "radio",
              name: this.id,
              value: each.value,
              checked: each.value === this.held,
              onChange: () => this.set(each.value),
              onKeydown: this.key,
            }),
            h("span", {}, [h("b", {}, each.label), each.hint ? h("span", { class: "hint" }, each.hint) : null]),
          ]),
        ),
        hint,
      ]);
    return h("div", { class: "field" }, [
      h("label", { for: this.id, class: this.hideLabel ? "unseen" : "" }, this.label),
      this.control(),
      hint,
    ]);
  },
};
