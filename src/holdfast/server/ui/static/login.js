document.documentElement.dataset.theme = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
const form = document.querySelector("form");
const said = document.querySelector("#said");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  said.textContent = "";
  const token = new FormData(form).get("token").trim();
  const answer = await fetch("/api/v1/login", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (answer.ok) {
    location.href = "/";
    return;
  }
  const problem = await answer.json().catch(() => ({ detail: "The server did not answer.", fix: "" }));
  said.textContent = `${problem.detail} ${problem.fix ? `Fix: ${problem.fix}` : ""}`;
  form.querySelector("input").focus();
});
