import { pill } from "holdfast";

export default {
  props: { word: String, title: String },
  render() {
    return pill(this.word, this.title);
  },
};
