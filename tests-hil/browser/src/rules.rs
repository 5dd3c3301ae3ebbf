//! Rules of accessibility, as a script that returns what breaks them. They are the part of the usual rules (WCAG 2.2, levels A and AA)
//! that a program can judge on a page of this kind.

/// An expression whose value is a list of sentences; empty if no rule is broken.
pub const ACCESSIBILITY: &str = r##"(() => {
  const wrong = [], say = (rule, element) => wrong.push(`${rule}: ${element.outerHTML.slice(0, 120)}`);
  const shown = element => element.getClientRects().length > 0 && getComputedStyle(element).visibility !== 'hidden';
  const all = selector => [...document.querySelectorAll(selector)].filter(shown);
  const texts = ids => (ids ?? '').split(/\s+/).filter(Boolean).map(id => document.getElementById(id));
  const name = element => {
    const by = texts(element.getAttribute('aria-labelledby'));
    if (by.some(one => !one)) say('aria-labelledby names nothing', element);
    return (by.map(one => one?.textContent ?? '').join(' ') || element.getAttribute('aria-label') || [...(element.labels ?? [])].map(one => one.textContent).join(' ')
      || (element.matches('input, select, meter') ? '' : element.textContent) || element.title || '').trim();
  };
  if (!document.documentElement.lang) wrong.push('the document has no language');
  if (!document.title) wrong.push('the document has no title');
  if (all('main').length !== 1) wrong.push('there is not one main');
  if (all('h1').length !== 1) wrong.push('there is not one h1');
  if (/user-scalable=no|maximum-scale/.test(document.querySelector('meta[name=viewport]')?.content ?? '')) wrong.push('zooming is forbidden');
  const ids = new Set();
  for (const element of document.querySelectorAll('[id]')) { if (ids.has(element.id)) say('an id is there twice', element); ids.add(element.id); }
  let before = 1;
  for (const head of all('h1, h2, h3, h4')) { const level = Number(head.tagName[1]); if (level > before + 1) say('a heading skips a level', head); before = level; }
  for (const element of all('button, a[href], input, select, textarea, [role=meter], [role=img], [role=treegrid], [role=group], section, dialog[open]')) if (!name(element)) say('it has no name', element);
  for (const element of all('[aria-describedby], [aria-activedescendant], [aria-controls]')) for (const key of ['aria-describedby', 'aria-activedescendant', 'aria-controls']) if (texts(element.getAttribute(key)).some(one => !one)) say(`${key} names nothing`, element);
  for (const element of all('[tabindex]')) if (element.tabIndex > 0) say('the order of focus is forced', element);
  for (const box of all('div, ol, section')) if (box.scrollHeight > box.clientHeight + 1 && /auto|scroll/.test(getComputedStyle(box).overflowY) && box.tabIndex < 0 && !box.querySelector('button, a, input')) say('the keyboard cannot scroll it', box);
  const roles = { row: ['rowgroup', 'treegrid'], gridcell: ['row'], rowheader: ['row'], columnheader: ['row'], rowgroup: ['treegrid'] };
  for (const role in roles) for (const element of all(`[role=${role}]`)) if (!roles[role].includes(element.parentElement.getAttribute('role'))) say(`a ${role} is not in a ${roles[role].join(' or ')}`, element);
  for (const element of all('[role=row]')) if (!element.hasAttribute('aria-rowindex')) say('a row has no index', element);
  for (const element of all('[role=meter]')) for (const key of ['aria-valuemin', 'aria-valuemax', 'aria-valuenow']) if (!element.hasAttribute(key)) say(`a meter has no ${key}`, element);
  // Contrast: the colour of each text against the first background behind it that is not clear.
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = colour => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => { const part = value => { const one = value / 255; return one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4; }; return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b); };
  const ground = element => { for (let one = element; one; one = one.parentElement) { const colour = rgb(getComputedStyle(one).backgroundColor); if (colour[3] === 255) return colour; } return [255, 255, 255, 255]; };
  const seen = new Set();
  for (const element of all('body *')) {
    if (![...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())) continue;
    if (element.closest('svg') || element.closest('.sr, .skip') || element.tagName === 'OPTION') continue;
    const style = getComputedStyle(element), behind = ground(element), key = `${style.color} ${behind}`;
    if (seen.has(key)) continue;
    seen.add(key);
    const [one, other] = [light(rgb(style.color)), light(behind)].sort((a, b) => b - a), contrast = (one + 0.05) / (other + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (contrast < (large ? 3 : 4.5)) say(`a contrast of ${contrast.toFixed(2)}`, element);
  }
  for (const element of all('button, input, select')) { const box = element.getBoundingClientRect(); if (box.width < 24 || box.height < 24) { if (!element.closest('li')) say('it is smaller than 24 pixels', element); } }
  return wrong;
})()"##;
