// Success curves drawn as links: every mark is a placement and opens its episode.
const place = document.querySelector('[data-curves]');
const source = document.querySelector('[data-curve-data]');
if (place && source) {
  const { policies } = JSON.parse(source.textContent);
  const names = 'http://www.w3.org/2000/svg';
  const make = (kind, values, text = '') => {
    const made = document.createElementNS(names, kind);
    for (const [key, value] of Object.entries(values)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };
  const [width, height, left, bottom, top, right] = [960, 420, 52, 40, 16, 210];
  const longest = Math.max(1, ...policies.flatMap((p) => p.steps.map((s) => s.t_s)));
  const x = (t) => left + ((width - left - right) * t) / longest;
  const y = (chance) => height - bottom - (height - bottom - top) * chance;
  const picture = make('svg', { viewBox: `0 0 ${width} ${height}` });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    picture.append(make('line', { x1: left, x2: width - right, y1: y(share), y2: y(share), stroke: 'var(--grid)' }), make('text', { x: left - 8, y: y(share) + 4, 'text-anchor': 'end' }, share.toFixed(2)));
  }
  const power = 10 ** Math.floor(Math.log10(longest / 9));
  const step = power * [1, 2, 5, 10].find((n) => n * power >= longest / 9);
  for (let n = 0; n * step <= longest; n += 1) picture.append(make('text', { x: x(n * step), y: height - bottom + 18, 'text-anchor': 'middle' }, String(Number((n * step).toPrecision(6)))));
  picture.append(make('text', { x: (left + width - right) / 2, y: height - 6, 'text-anchor': 'middle' }, 'seconds from the placement before'));
  policies.forEach((policy, number) => {
    const colour = `var(--t${number % 8})`;
    let drawn = `M${x(0)} ${y(0)}`;
    policy.steps.forEach((s) => { drawn += `H${x(s.t_s)}V${y(s.chance)}`; });
    picture.append(make('path', { d: drawn, fill: 'none', stroke: colour, 'stroke-width': 2 }));
    policy.steps.forEach((s) => {
      const link = make('a', { href: `${place.dataset.base || ''}/episode/${s.key}?t=${s.at_s.toFixed(3)}`, 'aria-label': `${policy.policy}, ${s.t_s.toFixed(2)} s` });
      link.append(make('circle', { cx: x(s.t_s), cy: y(s.chance), r: 5, fill: colour }), make('title', {}, `${policy.policy}: ${s.t_s.toFixed(2)} s`));
      picture.append(link);
    });
    picture.append(make('line', { x1: width - right + 14, x2: width - right + 28, y1: top + 20 * number + 2, y2: top + 20 * number + 2, stroke: colour, 'stroke-width': 4 }), make('text', { x: width - right + 34, y: top + 20 * number + 6 }, policy.policy));
  });
  place.append(picture);
}
