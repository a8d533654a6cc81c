// The job as it runs: sources, steps and sinks in columns, with what goes through them.
import { h } from "vue";
import { bytes, number, rate } from "holdfast";

const WIDE = 190;
const TALL = 80;
const GAP_X = 56;
const GAP_Y = 18;

export default {
  props: { nodes: { type: Array, default: () => [] }, edges: { type: Array, default: () => [] } },
  methods: {
    facts(node) {
      const found = [];
      if (node.rows_per_second !== null) found.push(["", `${rate(node.rows_per_second)} rows/s`]);
      if (node.state_rows !== null) found.push(["", `${number(node.state_rows)} keys`]);
      if (node.state_bytes !== null) found.push(["", bytes(node.state_bytes)]);
      if (node.lag !== null) found.push([node.lag > 0 ? "warn" : "", `${number(node.lag)} behind`]);
      if (node.late_rows) found.push(["warn", `${number(node.late_rows)} late`]);
      return found;
    },
  },
  render() {
    const places = {};
    let tallest = 0;
    let columns = 0;
    for (const node of this.nodes) {
      places[node.uid] = { x: node.column * (WIDE + GAP_X), y: node.row * (TALL + GAP_Y) };
      tallest = Math.max(tallest, places[node.uid].y + TALL);
      columns = Math.max(columns, node.column + 1);
    }
    const width = columns * WIDE + (columns - 1) * GAP_X;
    const lines = this.edges
      .filter(([from, to]) => places[from] && places[to])
      .map(([from, to]) => {
        const [a, b] = [places[from], places[to]];
        const [x1, y1, x2, y2] = [a.x + WIDE, a.y + TALL / 2, b.x - 5, b.y + TALL / 2];
        const half = (x1 + x2) / 2;
        return h("path", {
          key: `${from}\n${to}`,
          d: `M${x1} ${y1}C${half} ${y1} ${half} ${y2} ${x2} ${y2}m-5 -4l5 4l-5 4`,
        });
      });
    const boxes = this.nodes.map((node) =>
      h(
        "li",
        {
          key: node.uid,
          class: ["node", `node-${node.kind}`],
          style: { left: `${places[node.uid].x}px`, top: `${places[node.uid].y}px`, width: `${WIDE}px`, height: `${TALL}px` },
          title: node.detail,
        },
        [
          h("span", { class: "node-kind" }, node.kind === "native" ? "native step" : node.kind),
          h("span", { class: "node-uid" }, node.uid),
          h(
            "span",
            { class: "node-facts" },
            this.facts(node).map(([tone, text], at) => h("span", { key: at, class: tone ? `tone-${tone}` : "" }, text)),
          ),
        ],
      ),
    );
    return h("div", { class: "graph-box", tabindex: 0, role: "region", "aria-label": "Graph of the job" }, [
      h("div", { class: "graph", style: { width: `${width}px`, height: `${tallest}px` } }, [
        h("svg", { width, height: tallest, "aria-hidden": "true" }, lines),
        h("ul", {}, boxes),
      ]),
    ]);
  },
};
