// One stop for the tab key a figure; arrow keys go from mark to mark, enter follows the link as any other.
const told = document.querySelector('[data-mark-told]');
for (const figure of document.querySelectorAll('[data-marks]')) {
  const marks = [...figure.querySelectorAll('a')];
  marks.forEach((mark, place) => {
    mark.setAttribute('tabindex', place ? '-1' : '0');
    mark.addEventListener('focus', () => { told.textContent = mark.getAttribute('aria-label'); });
    mark.addEventListener('mouseenter', () => { told.textContent = mark.getAttribute('aria-label'); });
  });
  figure.addEventListener('keydown', (event) => {
    const here = marks.indexOf(document.activeElement);
    const there = { ArrowRight: here + 1, ArrowDown: here + 1, ArrowLeft: here - 1, ArrowUp: here - 1, Home: 0, End: marks.length - 1 }[event.key];
    if (here < 0 || there === undefined) return;
    event.preventDefault();
    const next = marks[(there + marks.length) % marks.length];
    marks[here].setAttribute('tabindex', '-1');
    next.setAttribute('tabindex', '0');
    next.focus();
  });
}
document.documentElement.dataset.ready = 'yes';
