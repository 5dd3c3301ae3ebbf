// The page: takes the stream in (its format is in hosts/page/src/wire.rs), and draws what has changed.
//
// The state is that of the program; what is kept beside it is what a person has opened, looked for and chosen, and sums that follow the
// changes. Everything is drawn in one animation frame after a change, and of the tree only the rows that can be seen. Nothing is measured
// while it is drawn: sizes are told by the browser when they change.

const $ = id => document.getElementById(id);
const state = { at: 0, site: {}, budgets: {}, nodes: {}, placements: [], lines: [], points: [] };
const LISTS = { placements: 60, lines: 200, points: 900 };
const dirty = new Set();
// What the tests read: when the first picture was there, in ms, and how many updates followed.
const stats = (globalThis.joulie = { first: null, updates: 0 });
let came = false;

// --- words

const unknown = '-';
const watts = value => (value == null ? unknown : value >= 999950 ? (value / 1e6).toFixed(2) + ' MW' : value >= 10000 ? (value / 1000).toFixed(1) + ' kW' : Math.round(value) + ' W');
const several = count => (count === 1 ? '1 node' : `${count} nodes`);
const percent = value => (value == null ? unknown : Math.round(value) + ' %');
const clock = at => new Date(at * 1000).toLocaleTimeString([], { hour12: false });
const text = (element, value) => { if (element.textContent !== value) element.textContent = value; };
const attribute = (element, name, value) => { if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value); };
const make = (tag, name, words) => { const element = document.createElement(tag); if (name) element.className = name; if (words != null) element.textContent = words; return element; };
const compare = new Intl.Collator('en', { numeric: true }).compare;

// --- the stream

function patch(target, changes) {
  for (const key in changes) {
    const value = changes[key];
    if (value === null) delete target[key];
    else target[key] = value;
  }
}

// What is said of all nodes together. It follows the changes of nodes, so that a change costs what has changed. Sums are of tenths, which
// are whole numbers: nothing is lost by adding and taking away.
const CLASSES = ['performance', 'eco', 'draining', 'unknown', 'not held', 'not measured'];
const is = (node, what) => (what === 'not held' ? node.enforced === 'no' : what === 'not measured' ? node.watts == null : node.class === what);
const nothing = () => ({ counts: Object.fromEntries(CLASSES.map(what => [what, 0])), sums: { unused: 0, cooling: 0, headroom: 0 }, known: { unused: 0, cooling: 0, headroom: 0 }, held: 0, asked: 0 });
let tally = nothing(), peak = null, peakGone = false;

function count(name, node, by) {
  for (const what of CLASSES) if (is(node, what)) tally.counts[what] += by;
  for (const field in tally.sums) if (node[field] != null) { tally.sums[field] += by * Math.round(node[field] * 10); tally.known[field] += by; }
  if (node.enforced !== 'unknown') { tally.asked += by; tally.held += node.enforced === 'yes' ? by : 0; }
  if (by < 0) peakGone ||= peak === name;
  else if (node.cooling != null && !peakGone && !(node.cooling <= state.nodes[peak]?.cooling)) peak = name;
}

// The node whose cooling is used most.
function hottest() {
  if (peakGone) {
    peak = null;
    peakGone = false;
    for (const name in state.nodes) { const used = state.nodes[name].cooling; if (used != null && !(used <= state.nodes[peak]?.cooling)) peak = name; }
  }
  return peak;
}

// The names of all nodes as a person sorts them. Those that come are put to the end, so that sorting again is cheap.
let sorted = [], unsorted = false;
function names() {
  if (unsorted) {
    sorted = [...new Set(sorted)].filter(name => state.nodes[name]).sort(compare);
    unsorted = false;
  }
  return sorted;
}

function take(kind, change) {
  if (kind === 'full') {
    Object.assign(state, change);
    places = null;
    [tally, peak, peakGone, sorted, unsorted] = [nothing(), null, false, Object.keys(state.nodes), true];
    for (const name in state.nodes) count(name, state.nodes[name], 1);
    for (const part of ['site', 'nodes', 'placements', 'lines', 'points']) dirty.add(part);
    freshPlaced = freshLines = null;
    return;
  }
  state.at = change.at;
  if (change.site) { patch(state.site, change.site); dirty.add('site'); }
  for (const name in change.budgets ?? {}) {
    const now = change.budgets[name];
    if (now === null || !state.budgets[name] || 'parent' in now) places = null;
    if (now === null) delete state.budgets[name];
    else patch((state.budgets[name] ??= {}), now);
    dirty.add('nodes');
  }
  for (const name in change.nodes ?? {}) {
    const now = change.nodes[name], before = state.nodes[name];
    if (now === null || !before || 'rack' in now || 'budget' in now) places = null;
    const fitted = filter && before && is(before, filter);
    if (before) count(name, before, -1);
    else sorted.push(name);
    if (now === null || !before) unsorted = true;
    if (now === null) delete state.nodes[name];
    else {
      patch((state.nodes[name] ??= {}), now);
      count(name, state.nodes[name], 1);
      if (filter && fitted !== is(state.nodes[name], filter)) places = null;
    }
    dirty.add('nodes');
  }
  for (const list in LISTS) {
    if (!change[list]) continue;
    state[list].push(...change[list]);
    state[list].splice(0, state[list].length - LISTS[list]);
    dirty.add(list);
    // Nothing is drawn of a page that nobody sees: what waits to be drawn has the bound of what is shown.
    if (list === 'placements' && freshPlaced) freshPlaced = [...freshPlaced, ...change[list]].slice(-LISTS.placements);
    if (list === 'lines' && freshLines) freshLines = [...freshLines, ...change[list]].slice(-LISTS.lines);
  }
}

let heard = 0, whole = false, refused = '';
const source = new EventSource('events');
for (const kind of ['full', 'change']) {
  source.addEventListener(kind, event => {
    take(kind, JSON.parse(event.data));
    whole = came = true;
    heard = performance.now();
    soon();
  });
}
source.addEventListener('error', async () => {
  heard = 0;
  standing();
  if (source.readyState !== EventSource.CLOSED) return;
  // It was refused, and does not come back by itself. Why, only another question tells.
  const stop = new AbortController();
  try {
    const answer = await fetch('events', { signal: stop.signal });
    if (!answer.ok) refused = (await answer.json()).said;
  } catch { /* it is away */ }
  stop.abort();
  standing();
  setTimeout(() => location.reload(), 5000);
});
setInterval(standing, 1000);

function standing() {
  const live = heard && performance.now() - heard < 15000;
  const is = live ? 'live' : !whole && source.readyState !== EventSource.CLOSED ? 'begins' : 'away';
  const said = { live: 'live', begins: 'connecting', away: refused || 'no connection: what is shown is old' }[is];
  text($('live'), said);
  attribute($('live'), 'data-is', is);
}

let asked = false;
function soon() {
  // Before the whole is there, nothing is to be drawn.
  if (asked || !whole) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    draw();
    if (stats.first == null) stats.first = performance.now();
    else if (came) stats.updates += 1;
    came = false;
  });
}

function draw() {
  standing();
  if (dirty.has('site') || dirty.has('nodes')) { drawSite(); drawStates(); }
  if (dirty.has('site')) drawControls();
  if (dirty.has('nodes')) drawTree();
  if (dirty.has('points')) drawCurve();
  if (dirty.has('placements')) drawPlaced();
  if (dirty.has('lines')) drawLines();
  dirty.clear();
}

// --- the whole

function facts(list, rows) {
  while (list.children.length > rows.length * 2) list.lastChild.remove();
  rows.forEach(([name, value, tone = '', wide], at) => {
    const title = list.children[at * 2] ?? list.appendChild(make('dt'));
    const body = list.children[at * 2 + 1] ?? list.appendChild(make('dd'));
    text(title, name);
    text(body, value);
    if (body.className !== tone) body.className = tone;
  });
}

function drawSite() {
  const now = state.site;
  text($('title'), now.title ?? 'Joulie');
  const title = now.watts == null ? now.title ?? 'Joulie' : `${watts(now.watts)} · ${now.title}`;
  if (document.title !== title) document.title = title;
  const age = now.planAge == null ? '' : `, confirmed ${now.planAge} s ago`;
  text($('plan'), now.leader ? `${now.policy ?? 'no policy'}${age} by ${now.leader}` : 'nobody has planned yet');
  const budgets = Object.entries(state.budgets);
  const broken = budgets.filter(([, one]) => one.enforced && one.kept === false);
  const over = now.limit != null && now.watts != null && now.watts > now.limit;
  text($('now'), watts(now.watts));
  text($('of'), now.limit != null ? `of ${watts(now.limit)}` : budgets.length ? 'no one limit is above all nodes' : 'no limit');
  const part = now.limit > 0 && now.watts != null ? (now.watts / now.limit) * 100 : null;
  const gauge = $('gauge');
  gauge.hidden = part == null;
  if (part != null) {
    gauge.firstElementChild.style.width = Math.min(part, 100) + '%';
    gauge.lastElementChild.style.left = now.counted == null ? '-4px' : `calc(${Math.min((now.counted / now.limit) * 100, 100)}% - 2px)`;
    gauge.classList.toggle('over', over);
    attribute(gauge, 'aria-valuenow', Math.round(Math.min(part, 100)));
    attribute(gauge, 'aria-valuetext', `${watts(now.watts)} of ${watts(now.limit)}, ${percent(part)}`);
  }
  const unused = tally.known.unused ? tally.sums.unused / 10 : null;
  let short = 0;
  for (const [, budget] of budgets) short = Math.max(short, budget.short ?? 0);
  facts($('facts'), [
    ['used', percent(part), over ? 'bad' : ''],
    ['counted', watts(now.counted)],
    ['unused', watts(unused)],
    ['short', short ? watts(short) : unknown, short ? 'bad' : ''],
    ['caps allow', watts(now.allowed)],
    ['whole nodes', watts(now.whole)],
    ['not measured', now.unmeasured ? several(now.unmeasured) : 'none', now.unmeasured ? 'warn' : ''],
    ['pods', `${now.running ?? 0} run, ${now.waiting ?? 0} wait`, now.waitingPerformance ? 'warn' : ''],
  ]);
  const wrong = [];
  if (now.apiSilent != null) wrong.push(`The API server has said nothing for ${now.apiSilent} s: what is shown is old.`);
  if (now.planAge > 60) wrong.push(`Nobody has planned for ${now.planAge} s: caps and labels stay as they are.`);
  for (const [name, budget] of broken) wrong.push(`Budget ${name} is not kept. ${budget.why ?? ''}`);
  text($('alarm'), wrong.join(' '));
  $('alarm').hidden = !wrong.length;
}

let filter = '';

function drawStates() {
  const { counts, sums, known, held, asked } = tally, hot = hottest();
  const mean = field => (known[field] ? percent(sums[field] / 10 / known[field]) : unknown);
  const box = $('states');
  if (!box.children.length) {
    for (const what of CLASSES) {
      const button = make('button');
      button.type = 'button';
      button.dataset.class = what;
      button.append(make('span', '', what), make('b'));
      button.addEventListener('click', () => { filter = filter === what ? '' : what; places = null; dirty.add('nodes'); soon(); });
      box.append(button);
    }
  }
  for (const button of box.children) {
    text(button.lastChild, String(counts[button.dataset.class]));
    attribute(button, 'aria-pressed', filter === button.dataset.class);
  }
  facts($('twins'), [
    ['in force as asked', asked ? `${held} of ${asked}` : unknown, asked && held < asked ? 'warn' : ''],
    ['headroom, mean', mean('headroom')],
    ['cooling used, mean', mean('cooling')],
    ['cooling used, most', hot ? `${percent(state.nodes[hot].cooling)} (${hot})` : unknown],
  ]);
}

// --- the curve

const SVG = 'http://www.w3.org/2000/svg';
const curve = $('curve');
const PART = { left: 52, right: 8, top: 8, bottom: 20 };
let cross = null;

function nice(most) {
  const step = 10 ** Math.floor(Math.log10(most || 1));
  return [0.25, 0.5, 1, 2].map(times => times * step).find(one => most / one <= 5) ?? step * 2.5;
}

function drawCurve() {
  const { width, height } = size, points = state.points;
  if (!width || !points.length) return;
  const end = points[points.length - 1][0], begin = Math.max(points[0][0], end - 900), span = Math.max(end - begin, 30);
  const seen = points.filter(point => point[0] >= begin);
  let most = 0;
  for (const point of seen) for (let which = 1; which <= 3; which += 1) if (point[which] > most) most = point[which];
  const step = nice(most * 1.08), top = Math.max(Math.ceil((most * 1.08) / step) * step, 1);
  const x = at => PART.left + ((at - begin) / span) * (width - PART.left - PART.right);
  const y = value => PART.top + (1 - value / top) * (height - PART.top - PART.bottom);
  const path = (which, steps) => {
    let d = '', before = null, gap = null, last = 0;
    const tenth = value => Math.round(value * 10) / 10;
    for (const point of seen) {
      const value = point[which];
      // What was not known is a gap, and so is a time in which nobody has looked.
      if (before != null && (value == null || point[0] - gap > 30)) {
        if (steps) d += `H${last}`;
        before = null;
      }
      if (value != null) {
        const at = tenth(x(point[0]));
        if (before == null) d += `M${at} ${tenth(y(value))}`;
        else if (!steps) d += `L${at} ${tenth(y(value))}`;
        else if (value !== before) d += `H${at}V${tenth(y(value))}`;
        [before, last] = [value, at];
      }
      gap = point[0];
    }
    return steps && before != null ? `${d}H${last}` : d;
  };
  attribute(curve, 'viewBox', `0 0 ${width} ${height}`);
  const drawn = path(1);
  const parts = [];
  for (let value = 0; value <= top; value += step) {
    parts.push(['line', { class: 'grid', x1: PART.left, x2: width - PART.right, y1: y(value), y2: y(value) }]);
    parts.push(['text', { x: PART.left - 6, y: y(value) + 4, 'text-anchor': 'end' }, top >= 1e6 ? `${value / 1e6} MW` : top >= 10000 ? `${value / 1000} kW` : `${value} W`]);
  }
  const ticks = Math.max(2, Math.min(6, Math.floor(width / 130)));
  for (let at = 0; at <= ticks; at += 1) {
    const when = begin + (span * at) / ticks;
    parts.push(['text', { x: x(when), y: height - 5, 'text-anchor': at === 0 ? 'start' : at === ticks ? 'end' : 'middle' }, clock(when)]);
  }
  const runs = drawn.split('M').filter(Boolean).map(run => 'M' + run);
  const area = runs.map(run => `${run}V${y(0)}H${run.slice(1).split(' ')[0]}Z`).join('');
  parts.push(['path', { class: 'area', d: area }], ['path', { class: 'counted', d: path(3, true) }]);
  parts.push(['path', { class: 'limit', d: path(2, true) }], ['path', { class: 'draw', d: drawn }]);
  let said = '';
  if (cross != null) {
    const when = begin + ((cross - PART.left) / (width - PART.left - PART.right)) * span;
    const near = seen.reduce((best, point) => (Math.abs(point[0] - when) < Math.abs(best[0] - when) ? point : best));
    parts.push(['line', { class: 'cross', x1: x(near[0]), x2: x(near[0]), y1: PART.top, y2: height - PART.bottom }]);
    said = `${clock(near[0])}: ${watts(near[1])} drawn, ${watts(near[2])} limit, ${watts(near[3])} counted`;
  } else {
    const known = seen.map(point => point[1]).filter(value => value != null);
    said = known.length ? `${clock(begin)} to ${clock(end)}: ${watts(Math.min(...known))} to ${watts(Math.max(...known))} drawn` : 'nothing is measured yet';
  }
  while (curve.children.length > parts.length) curve.lastChild.remove();
  parts.forEach(([tag, attributes, words], at) => {
    let element = curve.children[at];
    if (!element || element.tagName !== tag) {
      const fresh = document.createElementNS(SVG, tag);
      element ? element.replaceWith(fresh) : curve.append(fresh);
      element = fresh;
    }
    for (const name in attributes) attribute(element, name, attributes[name]);
    if (words != null) text(element, words);
  });
  text($('curve-said'), said);
}
curve.addEventListener('pointermove', event => { cross = event.clientX - curve.getBoundingClientRect().left; dirty.add('points'); soon(); });
curve.addEventListener('pointerleave', () => { cross = null; dirty.add('points'); soon(); });

// --- the tree

const HEADS = [['Name'], ['State'], ['Drawn'], ['Measured', 'num'], ['Limit', 'num'], ['Counted', 'num'], ['Unused', 'num'], ['In force'], ['Headroom', 'num'], ['Cooling', 'num'], ['Pods', 'num']];
for (const [words, name] of HEADS) {
  const cell = make('span', name ?? '', words);
  cell.setAttribute('role', 'columnheader');
  $('heads').append(cell);
}
const tree = $('tree'), rowsBox = $('rows'), pool = new Map();
const closed = new Set();
let places = null, folded = false, current = null, find = '', begun = false;

// The sizes of what is drawn into: of the curve, of a row, and what is seen of the tree.
const size = { width: 0, height: 0, row: 30, tree: 0, top: 0 };
const sizes = new ResizeObserver(entries => {
  for (const { target, contentRect } of entries) {
    if (target === curve) [size.width, size.height] = [Math.round(contentRect.width), Math.round(contentRect.height)];
    else if (target === tree) size.tree = contentRect.height;
    else size.row = contentRect.height || 30;
  }
  dirty.add('points');
  dirty.add('nodes');
  soon();
});
for (const id of ['curve', 'tree', 'heads']) sizes.observe($(id));

// The rows in their order: {key, kind, name, level, nodes?, open?}. It changes only with the structure, not with watts.
function arrange() {
  const known = names();
  const words = find.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = name => {
    const node = state.nodes[name];
    if (filter && !is(node, filter)) return false;
    if (!words.length) return true;
    const about = `${name} ${node.rack ?? ''} ${node.zone ?? ''} ${node.kind ?? ''} ${node.class} ${node.budget ?? ''}`.toLowerCase();
    return words.every(word => about.includes(word));
  };
  const under = new Map();
  for (const name of known) {
    if (!fits(name)) continue;
    const budget = state.budgets[state.nodes[name].budget] ? state.nodes[name].budget : '';
    if (!under.has(budget)) under.set(budget, []);
    under.get(budget).push(name);
  }
  const children = new Map();
  for (const name of Object.keys(state.budgets).sort(compare)) {
    const parent = state.budgets[state.budgets[name].parent] ? state.budgets[name].parent : '';
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(name);
  }
  const searching = words.length > 0 || filter !== '';
  const all = [];
  folded = false;
  const group = (row, inside) => {
    row.open = searching || !closed.has(row.key);
    row.nodes = row.nodes.map(name => state.nodes[name]);
    folded ||= !row.open;
    all.push(row);
    if (row.open) inside();
  };
  const racks = (list, level, prefix) => {
    const by = new Map();
    for (const name of list) {
      const rack = state.nodes[name].rack ?? 'no rack';
      if (!by.has(rack)) by.set(rack, []);
      by.get(rack).push(name);
    }
    const nodes = (some, deep) => { for (const name of some) all.push({ key: `n/${name}`, kind: 'node', name, level: deep }); };
    if (by.size <= 1) return nodes(list, level);
    for (const rack of [...by.keys()].sort(compare)) {
      const inside = by.get(rack);
      group({ key: `${prefix}/r/${rack}`, kind: 'rack', name: rack, level, nodes: inside }, () => nodes(inside, level + 1));
    }
  };
  const within = (name, seen) => [...(under.get(name) ?? []), ...(children.get(name) ?? []).filter(one => !seen.has(one)).flatMap(one => within(one, new Set([...seen, one])))];
  const budget = (name, level, seen) => {
    const nodes = within(name, seen);
    if (searching && !nodes.length) return;
    group({ key: `b/${name}`, kind: 'budget', name, level, nodes }, () => {
      for (const child of children.get(name) ?? []) if (!seen.has(child)) budget(child, level + 1, new Set([...seen, child]));
      racks(under.get(name) ?? [], level + 1, `b/${name}`);
    });
  };
  for (const name of children.get('') ?? []) budget(name, 1, new Set([name]));
  const free = under.get('') ?? [];
  if (free.length && all.length) group({ key: 'b/', kind: 'free', name: 'in no budget', level: 1, nodes: free }, () => racks(free, 2, 'b/'));
  else racks(free, 1, '');
  places = all;
  text($('count'), searching ? `${all.filter(row => row.kind === 'node').length} of ${several(known.length)}` : several(known.length));
}

const SUMMED = ['watts', 'granted', 'held', 'most', 'unused', 'pods'];
// What nodes come to together; null is what is known of none.
function together(nodes) {
  const all = { watts: null, granted: null, held: null, most: null, unused: null, pods: null, blind: 0, obey: 0 };
  for (const node of nodes) {
    for (const field of SUMMED) if (node[field] != null) all[field] += node[field];
    if (node.watts == null) all.blind += 1;
    if (node.enforced === 'yes') all.obey += 1;
  }
  return all;
}

function cells(row) {
  if (row.kind === 'node') {
    const node = state.nodes[row.name] ?? {};
    const marks = [node.reserved && 'reserved', node.byHand && 'by hand', node.notReady && 'not ready', node.watts == null && 'not measured'].filter(Boolean);
    const state_ = marks.length ? `${node.class}, ${marks.join(', ')}` : node.class;
    const caps = [node.packageCap != null && `${Math.round(node.packageCap)} W`, node.gpuCap != null && `GPU ${Math.round(node.gpuCap)} W`].filter(Boolean).join(', ');
    const held = { yes: caps || 'as asked', no: 'NOT held', unknown: 'not said' }[node.enforced];
    return {
      kind: node.kind ?? '', state: state_, tone: node.notReady || node.watts == null ? 'tone-bad' : `is-${node.class}`,
      meter: [node.watts, node.allowed ?? node.granted, node.most],
      numbers: [watts(node.watts), watts(node.granted ?? node.allowed), watts(node.held), watts(node.unused)],
      held, heldTone: { yes: '', no: 'tone-bad', unknown: 'quiet' }[node.enforced], why: node.why ?? '',
      rest: [percent(node.headroom), node.celsius != null ? `${percent(node.cooling)} ${Math.round(node.celsius)}°` : percent(node.cooling), node.performance ? `${node.pods} (${node.performance}p)` : String(node.pods ?? 0)],
    };
  }
  const budget = row.kind === 'budget' ? state.budgets[row.name] ?? {} : {};
  const inside = row.nodes, all = together(inside), mine = row.kind === 'budget';
  const measured = mine && budget.measured != null ? budget.measured : all.watts;
  const limit = mine ? budget.limit : all.granted, counted = mine ? budget.counted : all.held;
  const word = !mine ? '' : budget.paused ? 'paused' : budget.enforced ? 'enforced' : 'observed';
  const kept = !mine ? '' : budget.kept === true ? 'kept' : budget.kept === false ? 'NOT kept' : 'not known';
  return {
    kind: several(inside.length), state: [word, kept].filter(Boolean).join(', '), tone: budget.kept === false ? 'tone-bad' : '',
    meter: [measured, counted ?? all.held, limit ?? all.most],
    numbers: [all.blind && measured != null ? `${watts(measured)} +?` : watts(measured), watts(limit), watts(counted), watts(mine ? budget.unused : all.unused)],
    held: inside.length ? `${all.obey} of ${inside.length}` : '', heldTone: all.obey < inside.length ? 'tone-warn' : '', why: budget.why ?? '',
    rest: ['', '', String(all.pods ?? 0)],
  };
}

const put = (element, what, value) => { if (element[what] !== value) element[what] = value; };
function fill(element, row, at, height) {
  const parts = element.children, shown = cells(row);
  put(element.style, 'transform', `translateY(${at * height}px)`);
  put(element, 'className', `row l${Math.min(row.level, 6)} ${row.kind === 'node' ? '' : 'group'} ${row.key === current ? 'at' : ''}`);
  attribute(element, 'aria-rowindex', at + 2);
  attribute(element, 'aria-level', row.level);
  attribute(element, 'aria-selected', row.key === current);
  if (row.kind === 'node') element.removeAttribute('aria-expanded');
  else attribute(element, 'aria-expanded', row.open);
  attribute(element, 'data-key', row.key);
  text(parts[0].firstChild, row.kind === 'rack' && !/rack/i.test(row.name) ? `rack ${row.name}` : row.name);
  text(parts[0].lastChild, shown.kind);
  text(parts[1], shown.state);
  put(parts[1], 'title', shown.state);
  put(parts[1], 'className', shown.tone);
  const [is, may, most] = shown.meter, scale = Math.max(most ?? 0, may ?? 0, is ?? 0) || 1;
  const meter = parts[2].firstChild;
  const part = value => (value == null ? '0%' : `${Math.round((value / scale) * 1000) / 10}%`);
  put(meter, 'className', is == null ? 'meter none' : may != null && is > may * 1.02 ? 'meter over' : 'meter');
  put(meter.firstChild.style, 'width', part(may));
  put(meter.lastChild.style, 'width', part(is));
  attribute(parts[2], 'aria-label', `${watts(is)} drawn, ${watts(may)} allowed, ${watts(most)} at most`);
  shown.numbers.forEach((value, one) => text(parts[3 + one], value));
  text(parts[7], shown.held);
  put(parts[7], 'className', shown.heldTone);
  put(parts[7], 'title', shown.why);
  shown.rest.forEach((value, one) => text(parts[8 + one], value));
}

let numbered = 0;
function blank() {
  const element = make('div', 'row');
  element.setAttribute('role', 'row');
  element.id = `row-${(numbered += 1)}`;
  HEADS.forEach(([, name], at) => {
    const cell = make('span', at === 0 ? 'name' : name ?? '');
    cell.setAttribute('role', at === 0 ? 'rowheader' : 'gridcell');
    if (at === 0) cell.append(make('span'), make('span', 'kind'));
    if (at === 2) { const meter = make('span', 'meter'); meter.style.display = 'block'; meter.append(make('i'), make('b')); cell.append(meter); }
    element.append(cell);
  });
  return element;
}

function drawTree() {
  if (!begun && names().length > 60) {
    // Of a large site the groups are shown first.
    begun = true;
    for (const name in state.budgets) closed.add(`b/${name}`);
    for (const name in state.budgets) if (!state.budgets[state.budgets[name].parent]) closed.delete(`b/${name}`);
    for (const node of Object.values(state.nodes)) for (const prefix of [`b/${node.budget ?? ''}`, '']) closed.add(`${prefix}/r/${node.rack ?? 'no rack'}`);
  }
  if (!places) arrange();
  const height = size.row, offset = height + 1;
  attribute(tree, 'aria-rowcount', places.length + 1);
  put(rowsBox.style, 'height', `${places.length * height}px`);
  const first = Math.max(0, Math.floor(size.top / height) - 4);
  const last = Math.min(places.length, Math.ceil((size.top + size.tree - offset) / height) + 4);
  const wanted = new Map();
  for (let at = first; at < last; at += 1) wanted.set(places[at].key, at);
  const spare = [];
  for (const [key, element] of pool) if (!wanted.has(key)) { pool.delete(key); spare.push(element); }
  for (const [key, at] of wanted) {
    let element = pool.get(key);
    if (!element) { element = spare.pop() ?? rowsBox.appendChild(blank()); pool.set(key, element); }
    fill(element, places[at], at, height);
  }
  for (const element of spare) element.remove();
  const active = current && pool.get(current);
  if (active) attribute(tree, 'aria-activedescendant', active.id);
  else tree.removeAttribute('aria-activedescendant');
  text($('all'), folded ? 'Open all' : 'Close all');
}

function go(at) {
  if (!places?.length) return;
  const place = Math.max(0, Math.min(places.length - 1, at)), height = size.row;
  current = places[place].key;
  const top = place * height, room = size.tree - height - 2;
  if (top < size.top) tree.scrollTop = top;
  else if (top + height > size.top + room) tree.scrollTop = top + height - room;
  size.top = tree.scrollTop;
  dirty.add('nodes');
  soon();
}

function turn(row, open) {
  open ? closed.delete(row.key) : closed.add(row.key);
  places = null;
  dirty.add('nodes');
  soon();
}

tree.addEventListener('scroll', () => { size.top = tree.scrollTop; dirty.add('nodes'); soon(); }, { passive: true });
tree.addEventListener('focus', () => { if (!current && places?.length) go(0); });
tree.addEventListener('click', event => {
  const element = event.target.closest('#rows .row');
  const row = element && places.find(one => one.key === element.dataset.key);
  if (!row) return;
  current = row.key;
  row.kind === 'node' ? explain('node', row.name) : turn(row, !row.open);
});
tree.addEventListener('keydown', event => {
  const at = places?.findIndex(row => row.key === current) ?? -1, row = places?.[at], page = Math.max(1, Math.floor(size.tree / size.row) - 2);
  const keys = {
    ArrowDown: () => go(at + 1), ArrowUp: () => go(at - 1), PageDown: () => go(at + page), PageUp: () => go(at - page),
    Home: () => go(0), End: () => go(places.length - 1),
    ArrowRight: () => { if (row && row.kind !== 'node') row.open ? go(at + 1) : turn(row, true); },
    ArrowLeft: () => {
      if (row && row.kind !== 'node' && row.open) return turn(row, false);
      for (let up = at - 1; up >= 0; up -= 1) if (places[up].level < row.level) return go(up);
    },
    Enter: () => { if (row) row.kind === 'node' ? explain('node', row.name) : turn(row, !row.open); },
    ' ': () => keys.Enter(),
  };
  if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  keys[event.key]();
});
let typing = null;
$('find').addEventListener('input', event => {
  clearTimeout(typing);
  typing = setTimeout(() => { find = event.target.value; places = null; tree.scrollTop = size.top = 0; dirty.add('nodes'); soon(); }, 120);
});
$('all').addEventListener('click', () => {
  begun = true;
  if (folded) closed.clear();
  else for (const row of places ?? []) if (row.kind !== 'node') closed.add(row.key);
  places = null;
  dirty.add('nodes');
  soon();
});

// --- what happened, and where pods went

let freshPlaced = null, freshLines = null;
// The lists in which a person reads what is older.
const scrolled = new Set();
for (const list of [$('placed'), $('lines')]) list.addEventListener('scroll', () => { list.scrollTop > 4 ? scrolled.add(list) : scrolled.delete(list); }, { passive: true });
// Puts what is new on top; the first time everything is new.
function prepend(list, all, fresh, most, line) {
  const stay = scrolled.has(list) ? list.scrollHeight : null;
  if (!fresh) list.replaceChildren();
  for (const one of fresh ?? all) list.prepend(line(one));
  while (list.children.length > most) list.lastChild.remove();
  if (stay != null) list.scrollTop += list.scrollHeight - stay;
}
const moment = at => { const element = make('time', '', clock(at)); element.dateTime = new Date(at * 1000).toISOString(); return element; };

function drawPlaced() {
  prepend($('placed'), state.placements, freshPlaced, LISTS.placements, one => {
    const item = make('li'), words = make('span');
    const link = (kind, name) => { const button = make('button', '', name); button.type = 'button'; button.addEventListener('click', () => explain(kind, name)); return button; };
    words.append(link('pod', one.pod), one.performance ? ' (performance) on ' : ' on ', link('node', one.node), `: ${one.why}`);
    item.append(moment(one.at), words);
    return item;
  });
  freshPlaced = [];
}

const SIGNS = { good: '', plain: '', warn: 'Warning: ', bad: 'Wrong: ', act: 'Done: ' };
function drawLines() {
  prepend($('lines'), state.lines, freshLines, LISTS.lines, one => {
    const item = make('li'), words = make('span', `tone-${one.tone}`);
    if (SIGNS[one.tone]) words.append(make('span', 'sign', SIGNS[one.tone]));
    words.append(one.text);
    item.append(moment(one.at), words);
    return item;
  });
  freshLines = [];
}

// --- the explanation of a node or a pod

const about = $('about');
let shown = null;
async function explain(kind, name) {
  shown = [kind, name];
  text($('about-h'), `${kind} ${name}`);
  text($('about-command'), `kubectl joulie explain ${kind} ${name}`);
  const body = $('about-body');
  body.replaceChildren(make('p', 'quiet', 'Asking…'));
  if (!about.open) about.showModal();
  let answer;
  try {
    const response = await fetch(`explain?${kind}=${encodeURIComponent(name)}`);
    answer = await response.json();
    if (!response.ok) throw new Error(answer.said);
  } catch (error) {
    answer = { text: '', notes: [`It cannot be explained: ${error.message}`] };
  }
  if (shown[0] !== kind || shown[1] !== name) return;
  const list = make('dl');
  // As kubectl joulie prints it: two spaces, a title in eleven columns, a space, the text.
  for (const line of answer.text.split('\n').slice(1)) {
    if (!line.trim()) continue;
    const title = line.slice(2, 13).trim();
    if (title) list.append(make('dt', '', title));
    list.append(make('dd', '', line.slice(14)));
  }
  body.replaceChildren(list, ...answer.notes.map(note => make('p', 'tone-warn', note)));
}
$('about-close').addEventListener('click', () => about.close());
$('about-again').addEventListener('click', () => explain(...shown));
about.addEventListener('close', () => { shown = null; });

// --- what a person may do, in the demo

const token = document.querySelector('meta[name="joulie-token"]').content;
async function order(what) {
  const said = $('said');
  said.className = '';
  text(said, 'Asked…');
  try {
    const response = await fetch('do', { method: 'POST', headers: { 'content-type': 'application/json', 'joulie-page-token': token }, body: JSON.stringify(what) });
    const answer = await response.json();
    if (!response.ok) said.className = 'bad';
    text(said, answer.said);
  } catch (error) {
    said.className = 'bad';
    text(said, `The demo does not answer: ${error.message}`);
  }
}
const options = (select, names, words = name => name) => {
  const now = names.map(name => `${name}\n${words(name)}`).join('\n');
  if (select.dataset.names === now) return;
  const chosen = select.value;
  select.dataset.names = now;
  select.replaceChildren(...names.map(name => { const option = make('option', '', words(name)); option.value = name; return option; }));
  if (names.includes(chosen)) select.value = chosen;
};

const isBroken = name => state.site.controls?.faults.some(one => one.name === name && one.on);

function drawControls() {
  const controls = state.site.controls;
  $('controls').hidden = !controls;
  if (!controls) return;
  const budget = $('i-budget'), policy = $('i-policy'), node = $('i-node'), zone = $('i-zone'), fault = $('i-fault');
  // What a person is typing stays; what is in force is put in otherwise.
  if (document.activeElement !== budget && budget.dataset.is !== String(controls.budget)) {
    budget.value = controls.budget ?? '';
    budget.dataset.is = String(controls.budget);
  }
  options(policy, controls.policies);
  if (policy.dataset.is !== controls.policy) { policy.value = controls.policy; policy.dataset.is = controls.policy; }
  options(node, names(), name => (controls.silenced.includes(name) ? `${name} (silenced)` : name));
  options(zone, controls.zones, name => (controls.hot.includes(name) ? `${name} (no cooling)` : name));
  const told = new Map(controls.faults.map(one => [one.name, one.on ? `${one.about} (is so)` : one.about]));
  options(fault, [...told.keys()], name => told.get(name));
  text($('b-fault'), isBroken(fault.value) ? 'Mend' : 'Break');
  text($('b-node'), controls.silenced.includes(node.value) ? 'Mend' : 'Silence');
  text($('b-zone'), controls.hot.includes(zone.value) ? 'Start' : 'Stop');
  text($('leader-is'), controls.operator ? 'runs' : 'was killed');
  text($('b-leader'), controls.operator ? 'Kill' : 'Start');
}
for (const id of ['i-node', 'i-zone', 'i-fault']) $(id).addEventListener('change', () => { dirty.add('site'); soon(); });
const forms = {
  'f-budget': () => ({ do: 'budget', watts: Number($('i-budget').value) }),
  'f-policy': () => ({ do: 'policy', name: $('i-policy').value }),
  'f-node': () => ({ do: state.site.controls?.silenced.includes($('i-node').value) ? 'hear' : 'silence', node: $('i-node').value }),
  'f-zone': () => ({ do: state.site.controls?.hot.includes($('i-zone').value) ? 'cool' : 'heat', zone: $('i-zone').value }),
  'f-fault': () => ({ do: isBroken($('i-fault').value) ? 'mend' : 'break', fault: $('i-fault').value }),
  'f-leader': () => ({ do: state.site.controls?.operator ? 'kill-leader' : 'start-leader' }),
};
for (const id in forms) $(id).addEventListener('submit', event => { event.preventDefault(); order(forms[id]()); });

// --- light and dark

const root = document.documentElement, system = matchMedia('(prefers-color-scheme: dark)');
const dark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : system.matches);
const theme = () => text($('theme'), dark() ? 'Light' : 'Dark');
try { const kept = localStorage.getItem('joulie-theme'); if (kept === 'dark' || kept === 'light') root.dataset.theme = kept; } catch { /* a browser that keeps nothing */ }
$('theme').addEventListener('click', () => {
  root.dataset.theme = dark() ? 'light' : 'dark';
  try { localStorage.setItem('joulie-theme', root.dataset.theme); } catch { /* as above */ }
  theme();
});
system.addEventListener('change', theme);
theme();
standing();
