// The theme before anything is drawn, the menu of small screens, and logging out.
(() => {
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const CHOICES = ["auto", "light", "dark"];

  function chosen() {
    try {
      const kept = localStorage.getItem("holdfast-theme");
      return CHOICES.includes(kept) ? kept : "auto";
    } catch {
      return "auto";
    }
  }

  function apply() {
    const choice = chosen();
    const dark = choice === "dark" || (choice === "auto" && system.matches);
    root.dataset.theme = dark ? "dark" : "light";
    root.dataset.themeChoice = choice;
    if (window.Quasar) window.Quasar.Dark.set(dark);
    for (const button of document.querySelectorAll("[data-theme-button]")) {
      button.setAttribute("aria-label", `Colours: ${choice === "auto" ? "as the system" : choice}. Change`);
      button.title = button.getAttribute("aria-label");
    }
  }

  root.lang = "en";
  apply();
  system.addEventListener("change", apply);
  new MutationObserver((_, observer) => {
    if (document.querySelector("[data-theme-button]") && window.Quasar) {
      observer.disconnect();
      apply();
    }
  }).observe(root, { childList: true, subtree: true });

  document.addEventListener("click", async (event) => {
    const hit = (name) => event.target.closest && event.target.closest(`[data-${name}]`);
    if (hit("theme-button")) {
      localStorage.setItem("holdfast-theme", CHOICES[(CHOICES.indexOf(chosen()) + 1) % 3]);
      apply();
    }
    const menu = hit("menu-button");
    if (menu) {
      const open = menu.closest(".top").dataset.open !== "true";
      menu.closest(".top").dataset.open = String(open);
      menu.setAttribute("aria-expanded", String(open));
    }
    if (hit("logout")) {
      const me = await (await fetch("/api/v1/whoami")).json();
      await fetch("/api/v1/logout", { method: "POST", headers: { "X-CSRF-Token": me.csrf } });
      location.href = "/login";
    }
  });
})();
