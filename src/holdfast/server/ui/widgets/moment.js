import { now, moment } from "holdfast";

export default {
  props: { at: String, kind: { type: String, default: "time" } },
  render() {
    void now.value;
    return moment(this.at, this.kind);
  },
};
