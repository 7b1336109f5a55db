(function () {
  'use strict';
  var root = document.documentElement;
  var all = function (selector, within) { return Array.prototype.slice.call((within || document).querySelectorAll(selector)); };
  var byId = function (id) { return document.getElementById(id); };
  var make = function (name, attributes, text) {
    var element = document.createElement(name);
    Object.keys(attributes || {}).forEach(function (key) { element.setAttribute(key, attributes[key]); });
    if (text !== undefined) element.textContent = text;
    return element;
  };
  var own = function (object, key) { return Object.prototype.hasOwnProperty.call(object, key); };

  /* colours: as the system, light, dark */
  (function () {
    var button = byId('theme');
    var names = { '': 'Auto', light: 'Light', dark: 'Dark' };
    function show() {
      var theme = own(names, root.dataset.theme || '') ? root.dataset.theme || '' : '';
      button.querySelector('span').textContent = names[theme];
      button.setAttribute('aria-label', 'Colours: ' + names[theme]);
    }
    button.addEventListener('click', function () {
      var next = { '': 'light', light: 'dark', dark: '' }[root.dataset.theme || ''] || '';
      if (next) root.dataset.theme = next; else delete root.dataset.theme;
      try { if (next) localStorage.setItem('trialist-theme', next); else localStorage.removeItem('trialist-theme'); } catch (e) { /* not kept */ }
      show();
    });
    show();
  })();

  /* what is folded opens for whoever is led into it, before the browser scrolls there */
  function reveal(hash) {
    var target = hash.length > 1 && byId(decodeURIComponent(hash.slice(1)));
    if (!target) return;
    all('details.appendix', target).slice(0, 1).forEach(function (d) { d.open = true; });
    for (var node = target; node; node = node.parentElement) if (node.tagName === 'DETAILS') node.open = true;
  }
  window.addEventListener('hashchange', function () { reveal(location.hash); });
  document.addEventListener('click', function (event) {
    var link = event.target.closest && event.target.closest('a[href^="#"]');
    if (link) reveal(link.getAttribute('href'));
  });
  reveal(location.hash);

  /* contents: folded on a small screen, and where the reader is */
  (function () {
    if (window.matchMedia('(max-width: 1079px)').matches) all('.toc details').forEach(function (d) { d.open = false; });
    if (!('IntersectionObserver' in window)) return;
    var links = {};
    all('.toc a').forEach(function (a) { links[a.getAttribute('href').slice(1)] = a; });
    var watcher = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) {
        if (!entry.isIntersecting || !links[entry.target.id]) return;
        all('.toc a[aria-current]').forEach(function (a) { a.removeAttribute('aria-current'); });
        links[entry.target.id].setAttribute('aria-current', 'true');
      });
    }, { rootMargin: '-20% 0px -70% 0px' });
    all('main > section').forEach(function (section) { watcher.observe(section); });
  })();

  /* policies switched off everywhere at once */
  var hidden = {};
  function isOff(policy) { return own(hidden, 'p:' + policy); }
  function applyPolicies(within) {
    all('[data-policy]:not(.chip)', within).forEach(function (element) {
      element.classList.toggle('off', isOff(element.getAttribute('data-policy')));
    });
  }
  (function () {
    var chips = all('.chip[data-policy]');
    var everyone = byId('all-policies');
    function refresh() {
      chips.forEach(function (chip) { chip.setAttribute('aria-pressed', String(!isOff(chip.getAttribute('data-policy')))); });
      if (everyone) everyone.hidden = Object.keys(hidden).length === 0;
      applyPolicies();
    }
    chips.forEach(function (chip) {
      chip.addEventListener('click', function () {
        var key = 'p:' + chip.getAttribute('data-policy');
        if (own(hidden, key)) delete hidden[key]; else hidden[key] = true;
        refresh();
      });
    });
    if (everyone) everyone.addEventListener('click', function () { hidden = {}; refresh(); });
  })();

  /* one panel of a figure at a time */
  all('.figure').forEach(function (figure) {
    var box = figure.querySelector('.panels');
    var panels = all('.panel', box);
    if (panels.length < 2) return;
    panels.forEach(function (panel) { box.appendChild(panel); });
    all('details.more', box).forEach(function (more) { more.remove(); });
    var tools = make('div', { 'class': 'tools' });
    var label = make('label', {}, 'Panel ');
    var select = make('select');
    panels.forEach(function (panel, i) { select.appendChild(make('option', { value: i }, panel.dataset.label || 'panel ' + (i + 1))); });
    label.appendChild(select);
    var back = make('button', { type: 'button', 'aria-label': 'Previous panel' }, '‹');
    var on = make('button', { type: 'button', 'aria-label': 'Next panel' }, '›');
    [label, back, on].forEach(function (part) { tools.appendChild(part); });
    figure.querySelector('figcaption').after(tools);
    function show(i) {
      select.value = String((i + panels.length) % panels.length);
      panels.forEach(function (panel, k) { panel.hidden = k !== Number(select.value); });
    }
    select.addEventListener('change', function () { show(Number(select.value)); });
    back.addEventListener('click', function () { show(Number(select.value) - 1); });
    on.addEventListener('click', function () { show(Number(select.value) + 1); });
    show(0);
  });

  /* tooltips: by pointer, by touch, and by arrow keys in a focused figure */
  (function () {
    var tip = byId('tip');
    var lit = null;
    all('svg.chart .mark > title').forEach(function (title) {
      title.parentNode.setAttribute('data-tip', title.textContent);
      title.remove();
    });
    function hide() {
      tip.hidden = true;
      if (lit) lit.classList.remove('lit');
      lit = null;
      all('svg .cross').forEach(function (line) { line.remove(); });
    }
    function place(x, y) {
      tip.hidden = false;
      var box = tip.getBoundingClientRect();
      var left = x + 14 + box.width > window.innerWidth - 4 ? x - box.width - 14 : x + 14;
      var top = y + 16 + box.height > window.innerHeight - 4 ? y - box.height - 12 : y + 16;
      tip.style.left = Math.max(4, Math.min(left, window.innerWidth - box.width - 4)) + 'px';
      tip.style.top = Math.max(4, top) + 'px';
    }
    function light(mark) {
      if (lit) lit.classList.remove('lit');
      lit = mark;
      if (mark) mark.classList.add('lit');
    }
    /* the heights that a path of steps has at x: one of a curve, two of a band */
    function heightsAt(d, at) {
      var x = 0, y = 0, found = [];
      d.replace(/([MLhvz])(-?\d+)?(?:[ ,]?(-?\d+))?/g, function (whole, command, a, b) {
        var from = x;
        if (command === 'M' || command === 'L') { x = Number(a); y = Number(b); return ''; }
        if (command === 'v') { y += Number(a); return ''; }
        if (command === 'h') { x += Number(a); if (Math.min(from, x) <= at && at <= Math.max(from, x)) found.push(1 - y / 1000); }
        return '';
      });
      return found;
    }
    function readSteps(chart, x, y) {
      var style = getComputedStyle(chart), box = chart.getBoundingClientRect();
      var left = box.left + parseFloat(style.paddingLeft), right = box.right - parseFloat(style.paddingRight);
      var top = box.top + parseFloat(style.paddingTop), bottom = box.bottom - parseFloat(style.paddingBottom);
      if (x < left || x > right || y < top || y > bottom) return '';
      var plot = chart.querySelector('.plot'), share = (x - left) / (right - left);
      var lines = [];
      all('.mark', plot).forEach(function (mark) {
        if (mark.classList.contains('off')) return;
        var curve = heightsAt(mark.querySelector('.curve').getAttribute('d'), share * 1000);
        if (!curve.length) return;
        var value = Math.max.apply(null, curve), band = mark.querySelector('.band');
        var ends = band ? heightsAt(band.getAttribute('d'), share * 1000) : [];
        var text = mark.getAttribute('data-policy') + ' ≈ ' + value.toFixed(2);
        if (ends.length > 1) text += ' [' + Math.min.apply(null, ends).toFixed(2) + ', ' + Math.max.apply(null, ends).toFixed(2) + ']';
        lines.push([value, text]);
      });
      lines.sort(function (a, b) { return b[0] - a[0]; });
      all('svg .cross').forEach(function (line) { line.remove(); });
      var cross = document.createElementNS('http://www.w3.org/2000/svg', 'line');
      var where = 100 * share + '%';
      [['class', 'cross'], ['x1', where], ['x2', where], ['y1', '0'], ['y2', plot.getAttribute('height')]].forEach(function (pair) { cross.setAttribute(pair[0], pair[1]); });
      chart.appendChild(cross);
      var time = share * Number(plot.dataset.xMax);
      return plot.dataset.xLabel + ': ' + Number(time.toPrecision(3)) + '\n' + lines.map(function (line) { return line[1]; }).join('\n');
    }
    function point(event) {
      var chart = event.target.closest && event.target.closest('svg.chart');
      if (!chart) { hide(); return; }
      var mark = event.target.closest('.mark');
      var text = chart.classList.contains('steps') ? readSteps(chart, event.clientX, event.clientY) : '';
      text = text || (mark && mark.getAttribute('data-tip'));
      if (!text) { hide(); return; }
      light(mark);
      tip.textContent = text;
      place(event.clientX, event.clientY);
    }
    document.addEventListener('pointermove', function (event) { if (event.pointerType === 'mouse') point(event); });
    document.addEventListener('pointerdown', point);
    document.addEventListener('scroll', function () { if (!lit || !lit.closest('svg.chart').matches(':focus')) hide(); }, { passive: true });
    all('svg.chart').forEach(function (chart) {
      chart.setAttribute('tabindex', '0');
      chart.setAttribute('aria-roledescription', 'figure; arrow keys read its values' + (chart.querySelector('a.mark') ? ', enter lists the episodes behind one' : ''));
      all('a.mark', chart).forEach(function (mark) { mark.setAttribute('tabindex', '-1'); });
      chart.addEventListener('keydown', function (event) {
        var step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (event.key === 'Escape') { hide(); return; }
        if (event.key === 'Enter' && lit && lit.hasAttribute('href')) { event.preventDefault(); lit.dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true })); return; }
        if (!step) return;
        var marks = all('.mark:not(.words):not(.off)', chart);
        if (!marks.length) return;
        event.preventDefault();
        var at = marks.indexOf(lit);
        var mark = marks[at < 0 ? (step > 0 ? 0 : marks.length - 1) : (at + step + marks.length) % marks.length];
        light(mark);
        tip.textContent = mark.getAttribute('data-tip');
        var box = mark.getBoundingClientRect();
        place(Math.min(Math.max(box.left, 0) + Math.min(box.width, 200) / 2, window.innerWidth - 20), Math.max(0, Math.min(box.bottom, window.innerHeight - 60)));
      });
      chart.addEventListener('blur', hide);
    });
  })();

  /* tables: sort by a heading, filter the rows */
  function exact(cell) {
    if (!cell) return null;
    var raw = cell.getAttribute('data-value');
    if (raw === null) return null;
    if (raw === 'inf') return Infinity;
    if (raw === '-inf') return -Infinity;
    var value = Number(raw);
    return isNaN(value) ? null : value;
  }
  function compare(a, b, direction) {
    /* absent last, whichever way */
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
    if (typeof a === 'number' && typeof b === 'number') return direction * (a < b ? -1 : a > b ? 1 : 0);
    return direction * String(a).localeCompare(String(b), undefined, { numeric: true });
  }
  function sortable(table, onSort) {
    var heads = all('thead th', table);
    var state = { column: -1, direction: 0 };
    heads.forEach(function (head, column) {
      var name = head.textContent;
      if (name === 'episodes' && column === heads.length - 1 && table.querySelector('tbody a.eps')) return;
      var link = head.querySelector('a');
      var button = make('button', { type: 'button', 'class': 'sort', 'aria-label': 'Sort by ' + name });
      if (!link) { head.textContent = ''; button.textContent = name + ' '; }
      button.appendChild(make('span', { 'class': 'arrow', 'aria-hidden': 'true' }, '↕'));
      head.appendChild(button);
      head.setAttribute('aria-sort', 'none');
      head.addEventListener('click', function (event) {
        if (event.target.closest('a')) return;
        if (state.column !== column) state = { column: column, direction: 1 };
        else state = state.direction === 1 ? { column: column, direction: -1 } : { column: -1, direction: 0 };
        heads.forEach(function (other, i) {
          var mine = other.querySelector('.sort');
          if (!mine) return;
          var how = i === state.column ? state.direction : 0;
          other.setAttribute('aria-sort', how === 0 ? 'none' : how > 0 ? 'ascending' : 'descending');
          mine.querySelector('.arrow').textContent = how === 0 ? '↕' : how > 0 ? '↑' : '↓';
        });
        onSort(state.column, state.direction);
      });
    });
  }
  function cellKey(row, column) {
    var cell = row.cells[column];
    var value = exact(cell);
    if (value !== null) return value;
    var text = cell ? cell.textContent.trim() : '';
    return text === '—' || text === '' ? null : text;
  }
  all('table').forEach(function (table) {
    if (table.id === 'episode-table') return;
    var body = table.tBodies[0];
    var rows = Array.prototype.slice.call(body.rows);
    sortable(table, function (column, direction) {
      var order = rows.map(function (row, i) { return [column < 0 ? null : cellKey(row, column), i, row]; });
      if (column >= 0) order.sort(function (a, b) { return compare(a[0], b[0], direction) || a[1] - b[1]; });
      order.forEach(function (entry) { body.appendChild(entry[2]); });
    });
    if (rows.length <= 8) return;
    var box = make('div', { 'class': 'filter' });
    var input = make('input', { type: 'search', placeholder: 'Filter rows', 'aria-label': 'Filter the rows of this table' });
    var count = make('span', { role: 'status' });
    box.appendChild(input);
    box.appendChild(count);
    table.closest('.scroll').before(box);
    input.addEventListener('input', function () {
      var words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      var n = 0;
      rows.forEach(function (row) {
        var text = row.textContent.toLowerCase();
        row.hidden = !words.every(function (word) { return text.indexOf(word) >= 0; });
        if (!row.hidden) n += 1;
      });
      count.textContent = words.length ? n + ' of ' + rows.length + ' rows' : '';
    });
  });
  (function () {
    var boxes = all('.scroll');
    function look(box) {
      var wide = box.scrollWidth > box.clientWidth + 1, tall = box.scrollHeight > box.clientHeight + 1;
      box.classList.toggle('wide', wide);
      if (wide || tall) box.setAttribute('tabindex', '0'); else box.removeAttribute('tabindex');
    }
    function lookAll() { boxes.forEach(look); }
    if ('ResizeObserver' in window) {
      var watcher = new ResizeObserver(function (entries) { entries.forEach(function (entry) { look(entry.target); }); });
      boxes.forEach(function (box) { watcher.observe(box); });
    } else { lookAll(); window.addEventListener('resize', lookAll); }
  })();

  /* episodes: all of them, by pages, narrowed by the link that was followed */
  (function () {
    var store = byId('episode-data');
    if (!store) return;
    var data = JSON.parse(store.textContent);
    var PAGE = 50, start = 0, sort = { column: -1, direction: 0 }, where = {};
    var table = byId('episode-table'), body = table && table.tBodies[0];
    var choose = byId('episode-choose'), pager = byId('episode-pager'), count = byId('episode-count'), command = byId('episode-command');
    var names = data.columns.map(function (column) { return column.name; });
    var policyAt = names.indexOf('policy');
    function placeOf(field) { return names.indexOf(field === 'episode_id' ? 'episode' : field); }
    function valueAt(column, i) {
      if (column.numbers) return column.numbers[i];
      return column.texts[column.codes ? column.codes[i] : i];
    }
    function textAt(column, i) {
      var value = valueAt(column, i);
      if (value === null || value === undefined) return '—';
      if (typeof value === 'number' && column.digits !== undefined) return value.toFixed(column.digits);
      return String(value);
    }
    function say() {
      var parts = ['robotrials', 'store', 'ls', quoted(data.source)];
      var asked = Object.assign({}, data.selection, where);
      Object.keys(asked).forEach(function (field) {
        asked[field].forEach(function (value) { parts.push('--where', quoted(field + '=' + value)); });
      });
      command.textContent = parts.join(' ') + ' --limit 0';
    }
    document.addEventListener('click', function (event) {
      var link = event.target.closest && event.target.closest('a.eps[data-where]');
      if (!link) return;
      where = JSON.parse(link.getAttribute('data-where'));
      start = 0;
      if (table) draw(); else say();
    });
    if (!table) return; /* no list, or too many for one: the command alone */
    function quoted(text) { return /^[\w@%+=:,.\/-]+$/.test(text) ? text : "'" + text.replace(/'/g, "'\"'\"'") + "'"; }
    var selects = {};
    data.columns.forEach(function (column) {
      if (!column.codes || column.texts.length < 2 || column.texts.length > 200) return;
      var label = make('label', {}, column.name + ' ');
      var select = make('select');
      select.appendChild(make('option', { value: '*' }, 'all'));
      column.texts.forEach(function (text, i) { select.appendChild(make('option', { value: i }, text === null ? '—' : text)); });
      select.addEventListener('change', function () {
        if (select.value === '*') delete where[column.name];
        else where[column.name] = [String(column.texts[Number(select.value)])];
        start = 0;
        draw();
      });
      selects[column.name] = select;
      label.appendChild(select);
      choose.appendChild(label);
    });
    var clear = make('button', { type: 'button' }, 'All episodes');
    clear.addEventListener('click', function () { where = {}; start = 0; draw(); });
    choose.appendChild(clear);
    function syncSelects() {
      Object.keys(selects).forEach(function (name) {
        var column = data.columns[names.indexOf(name)], select = selects[name];
        all('option.several', select).forEach(function (option) { option.remove(); });
        if (!own(where, name)) { select.value = '*'; return; }
        var at = where[name].length === 1 ? column.texts.map(String).indexOf(where[name][0]) : -1;
        if (at >= 0) { select.value = String(at); return; }
        select.appendChild(make('option', { value: '', 'class': 'several' }, where[name].join(', ')));
        select.value = '';
      });
    }
    function chosen() {
      var fields = Object.keys(where).filter(function (field) { return placeOf(field) >= 0; });
      var tests = fields.map(function (field) {
        var column = data.columns[placeOf(field)];
        /* the list holds the beginning of an id */
        if (field === 'episode_id') return function (i) { var id = String(valueAt(column, i)); return where[field].some(function (whole) { return whole.indexOf(id) === 0; }); };
        return function (i) { var value = valueAt(column, i); return where[field].indexOf(value === null || value === undefined ? '' : String(value)) >= 0; };
      });
      var kept = [];
      for (var i = 0; i < data.n; i += 1) if (tests.every(function (test) { return test(i); })) kept.push(i);
      if (sort.column >= 0) {
        var by = data.columns[sort.column];
        kept.sort(function (a, b) {
          var one = valueAt(by, a), other = valueAt(by, b);
          return compare(one === undefined ? null : one, other === undefined ? null : other, sort.direction) || a - b;
        });
      }
      return kept;
    }
    function draw() {
      var kept = chosen();
      var unknown = Object.keys(where).filter(function (field) { return placeOf(field) < 0; });
      start = Math.max(0, Math.min(start, Math.floor((kept.length - 1) / PAGE) * PAGE));
      body.textContent = '';
      kept.slice(start, start + PAGE).forEach(function (i) {
        var row = make('tr');
        if (policyAt >= 0) row.setAttribute('data-policy', textAt(data.columns[policyAt], i));
        data.columns.forEach(function (column, k) {
          var value = valueAt(column, i);
          var cell = make(k === 0 && typeof value !== 'number' ? 'th' : 'td');
          if (cell.tagName === 'TH') cell.setAttribute('scope', 'row');
          if (column.numbers) cell.className = 'n';
          if (typeof value === 'number') cell.setAttribute('data-value', String(value));
          if (k === policyAt) { cell.appendChild(make('i', { 'class': 'key' })); cell.className = 'p'; }
          cell.appendChild(document.createTextNode(textAt(column, i)));
          row.appendChild(cell);
        });
        body.appendChild(row);
      });
      var told = kept.length === data.n ? data.n.toLocaleString('en') + (data.n === 1 ? ' episode' : ' episodes') : kept.length.toLocaleString('en') + ' of ' + data.n.toLocaleString('en') + ' episodes';
      if (unknown.length) told += '; this list does not hold ' + unknown.join(', ') + ': the command above does';
      count.textContent = told;
      say();
      syncSelects();
      pager.textContent = '';
      if (kept.length > PAGE) {
        var back = make('button', { type: 'button' }, '‹ Earlier'), on = make('button', { type: 'button' }, 'Later ›');
        back.disabled = start === 0;
        on.disabled = start + PAGE >= kept.length;
        back.addEventListener('click', function () { start -= PAGE; draw(); });
        on.addEventListener('click', function () { start += PAGE; draw(); });
        pager.appendChild(back);
        pager.appendChild(make('span', {}, (start + 1) + '–' + Math.min(start + PAGE, kept.length) + ' of ' + kept.length.toLocaleString('en')));
        pager.appendChild(on);
      }
    }
    sortable(table, function (column, direction) { sort = { column: column, direction: direction }; start = 0; draw(); });
    draw();
  })();

  /* what is to be copied, and what is to be printed */
  all('.copy').forEach(function (button) {
    button.addEventListener('click', function () {
      var text = button.closest('.passage').querySelector('pre, .prose').textContent;
      function done(ok) { button.textContent = ok ? 'Copied' : 'Select it by hand'; setTimeout(function () { button.textContent = 'Copy'; }, 2000); }
      function byHand() {
        var area = make('textarea', { style: 'position:fixed;opacity:0' });
        area.value = text;
        document.body.appendChild(area);
        area.select();
        var ok = false;
        try { ok = document.execCommand('copy'); } catch (e) { ok = false; }
        area.remove();
        done(ok);
      }
      if (navigator.clipboard && navigator.clipboard.writeText) navigator.clipboard.writeText(text).then(function () { done(true); }, byHand);
      else byHand();
    });
  });
  var opened = [];
  window.addEventListener('beforeprint', function () {
    opened = all('#glossary > details:not([open]), #references > details:not([open])');
    opened.forEach(function (d) { d.open = true; });
  });
  window.addEventListener('afterprint', function () { opened.forEach(function (d) { d.open = false; }); opened = []; });
})();
