// Before anything is painted: the theme that was chosen, or the system's, also when that changes.
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const paint = () => {
    let chosen = null;
    try {
      chosen = localStorage.getItem("dibs-theme");
    } catch {} // private windows may have none
    const known = chosen === "light" || chosen === "dark";
    document.documentElement.dataset.theme = known ? chosen : system.matches ? "dark" : "light";
  };
  paint();
  system.addEventListener("change", paint);
})();
