// Timelines and the savepoints in them, as a tree: what came from what.
import { h } from "vue";
import { bytes, moment, now, number } from "holdfast";

export default {
  props: {
    trees: { type: Array, default: () => [] },
    chosen: { type: String, default: "" },
  },
  emits: ["choose"],
  methods: {
    timeline(line, job) {
      const origin = line.origin
        ? `from ${line.origin_job && line.origin_job !== job ? `${line.origin_job}, ` : ""}${line.origin}${line.origin_gone ? " (gone)" : ""}`
        : "from the beginning";
      return h("li", { key: `t:${line.job_id}:${line.name}`, class: "timeline" }, [
        h("div", { class: ["branch", line.current ? "current" : ""] }, [
          h("span", { class: "dot" }),
          h("span", { class: "mono" }, line.name),
          line.current ? h("span", { class: "pill tone-good" }, "current") : null,
          h("span", { class: "muted" }, origin),
          line.began ? h("span", { class: "muted" }, moment(line.began, "time")) : null,
        ]),
        this.children(line.savepoints, line.timelines, job),
      ]);
    },
    savepoint(point, job) {
      return h("li", { key: `s:${point.id}`, class: "savepoint" }, [
        h(
          "button",
          {
            type: "button",
            class: ["branch", "link", point.id === this.chosen ? "chosen" : ""],
            "aria-pressed": point.id === this.chosen ? "true" : "false",
            onClick: () => this.$emit("choose", point.id),
          },
          [
            h("span", { class: "dot square" }),
            h("span", { class: "mono" }, point.id),
            point.label ? h("span", { class: "label" }, point.label) : null,
            h("span", { class: "muted" }, `epoch ${number(point.epoch)}, ${number(point.keys)} ${point.keys === 1 ? "key" : "keys"}, ${bytes(point.bytes)}`),
            h("span", { class: "muted" }, moment(point.created, "time")),
          ],
        ),
        this.children([], point.timelines, job),
      ]);
    },
    children(savepoints, timelines, job) {
      if (!savepoints.length && !timelines.length) return null;
      return h("ul", {}, [
        ...savepoints.map((each) => this.savepoint(each, job)),
        ...timelines.map((each) => this.timeline(each, job)),
      ]);
    },
  },
  render() {
    void now.value;
    return h(
      "div",
      { class: "lineage" },
      this.trees.map((tree) =>
        h("section", { key: tree.job, "aria-label": `Lineage of ${tree.job}` }, [
          h("h2", {}, [h("a", { href: tree.href }, tree.job)]),
          h("ul", { class: "roots" }, tree.timelines.map((each) => this.timeline(each, tree.job))),
        ]),
      ),
    );
  },
};
