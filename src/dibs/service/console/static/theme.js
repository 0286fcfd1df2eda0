// Before anything is painted: the theme that was chosen, or the system's.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("dibs-theme");
  } catch {}
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
