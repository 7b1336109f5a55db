// Before the first paint: that there is a script, and the colours chosen the last time.
document.documentElement.classList.add('js');
try {
  const kept = localStorage.getItem('trialist-theme');
  if (kept) document.documentElement.dataset.theme = kept;
} catch (error) { /* no storage: the system's colours */ }
document.addEventListener('click', (event) => {
  if (!event.target.closest || !event.target.closest('[data-theme-switch]')) return;
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
  try { localStorage.setItem('trialist-theme', root.dataset.theme); } catch (error) { /* only for this page */ }
});
