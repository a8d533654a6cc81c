// What an operation would do, part by part, before anything is done.
import { h } from "vue";
import { pill } from "holdfast";

export default {
  props: { plan: Object },
  render() {
    const plan = this.plan;
    if (!plan) return h("div", { class: "plan-none" });
    const parts = plan.parts || [];
    return h("div", { class: "plan" }, [
      h("p", { class: "sentence" }, plan.sentence),
      (plan.beyond || []).length
        ? h("div", { class: "notice tone-warn" }, [
            h("strong", {}, "Beyond that point"),
            ...plan.beyond.map((line) => h("p", { key: line }, line)),
          ])
        : null,
      parts.length
        ? h("div", { class: "table-box", tabindex: 0, role: "region", "aria-label": "The plan, part by part" }, [
            h("table", {}, [
              h("caption", { class: "unseen" }, "The plan, part by part"),
              h("thead", {}, [
                h("tr", {}, [
                  h("th", { scope: "col" }, "Part"),
                  h("th", { scope: "col" }, "uid"),
                  h("th", { scope: "col" }, "What happens"),
                  h("th", { scope: "col" }, "Why"),
                ]),
              ]),
              h(
                "tbody",
                {},
                parts.map((part, at) =>
                  h("tr", { key: at }, [
                    h("td", {}, part.part),
                    h("td", { class: "kind-mono" }, part.uid),
                    h("td", {}, [pill(part.error ? "refused" : part.outcome)]),
                    h("td", {}, [
                      part.reason || "",
                      part.error ? h("p", { class: "fix" }, [h("b", { class: "mono" }, part.error), part.fix ? ` Fix: ${part.fix}` : ""]) : null,
                    ]),
                  ]),
                ),
              ),
            ]),
          ])
        : null,
      plan.refused
        ? h("div", { class: "notice tone-bad", role: "alert" }, [h("strong", {}, "This would be refused; see above.")])
        : null,
    ]);
  },
};
