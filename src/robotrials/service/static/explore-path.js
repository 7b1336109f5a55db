// The path of the tool and of objects: in three dimensions where the browser can, else from above.
export function drawPath(place, path, colour) {
  const legend = document.createElement('p');
  legend.className = 'legend';
  lines(path).forEach((one, number) => {
    const name = document.createElement('span');
    const swatch = document.createElement('i');
    swatch.style.background = colour(number);
    name.append(swatch, one.name);
    legend.append(name);
  });
  place.append(legend);
  try {
    return new Flat(place, path, colour).orDeep();
  } catch (error) {
    return new Flat(place, path, colour).start();
  }
}

function lines(path) {
  return [{ name: 'tool', path: path.tool }, ...path.bodies].filter((one) => one.path.length && one.path.every((p) => p.every((v) => v !== null)));
}

class Flat {
  constructor(place, path, colour) {
    this.place = place;
    this.path = path;
    this.colour = colour;
    this.lines = lines(path);
    this.index = 0;
  }

  orDeep() {
    const flat = this;
    const probe = document.createElement('canvas').getContext('webgl2');
    if (!probe) return this.start();
    const holder = { at: (index) => { flat.index = index; } };
    import('./explore-path-3d.js')
      .then((module) => { const deep = new module.Deep(flat.place, flat.path, flat.lines, flat.colour); holder.at = (index) => deep.at(index); deep.at(flat.index); })
      .catch(() => { flat.start(); holder.at = (index) => flat.at(index); flat.at(flat.index); });
    return { at: (index) => holder.at(index) };
  }

  start() {
    this.canvas = document.createElement('canvas');
    this.place.append(this.canvas);
    const note = document.createElement('p');
    note.className = 'note';
    note.textContent = 'from above (this browser draws no 3D)';
    this.place.append(note);
    return this;
  }

  at(index) {
    const { canvas } = this;
    if (!canvas) return;
    const ratio = devicePixelRatio || 1;
    canvas.width = this.place.clientWidth * ratio;
    canvas.height = this.place.clientHeight * ratio;
    const points = this.lines.flatMap((one) => one.path);
    const xs = points.map((p) => p[1]);
    const ys = points.map((p) => p[0]);
    const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const scale = 0.88 * Math.min(canvas.width / Math.max(right - left, 0.05), canvas.height / Math.max(high - low, 0.05));
    const at = (p) => [canvas.width / 2 - (p[1] - (left + right) / 2) * scale, canvas.height / 2 - (p[0] - (low + high) / 2) * scale];
    const pen = canvas.getContext('2d');
    this.lines.forEach((one, number) => {
      pen.strokeStyle = pen.fillStyle = this.colour(number);
      pen.lineWidth = (number ? 1 : 2) * ratio;
      pen.beginPath();
      one.path.forEach((p, n) => (n ? pen.lineTo(...at(p)) : pen.moveTo(...at(p))));
      pen.stroke();
      const here = at(one.path[Math.min(index, one.path.length - 1)]);
      pen.beginPath();
      pen.arc(...here, (number ? 4 : 6) * ratio, 0, 7);
      pen.fill();
    });
  }
}
