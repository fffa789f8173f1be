var SVG = 'http://www.w3.org/2000/svg';
var DATA = JSON.parse(document.getElementById('data').textContent).tasks;

function $(selector, root) { return (root || document).querySelector(selector); }
function $$(selector, root) {
  return Array.prototype.slice.call((root || document).querySelectorAll(selector));
}

/* Labels only ever arrive here as text, never as markup. */
function make(tag, parent, text, name) {
  var node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  if (name) node.className = name;
  if (parent) parent.appendChild(node);
  return node;
}

function draw(tag, attributes, parent) {
  var node = document.createElementNS(SVG, tag);
  Object.keys(attributes).forEach(function (key) { node.setAttribute(key, attributes[key]); });
  parent.appendChild(node);
  return node;
}

function paint(node, row) {
  node.classList.add('ink');
  node.style.setProperty('--l', row.colour[0]);
  node.style.setProperty('--d', row.colour[1]);
}

/* The same rule as in the tables: three digits, separators, exponents at the extremes. */
function text(value) {
  var size = Math.abs(value), result;
  if (size !== 0 && (size >= 1e7 || size < 1e-3)) {
    result = size.toExponential(2).replace('e+', 'e');
  } else {
    var places = size === 0 || size >= 1000 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(size)));
    result = size.toLocaleString('en-US', {
      minimumFractionDigits: places, maximumFractionDigits: places
    });
  }
  return (value < 0 ? '\u2212' : '') + result;
}

function tick(value) {
  var size = Math.abs(value), sign = value < 0 ? '\u2212' : '';
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) {
    return sign + Number(size.toPrecision(6)).toExponential().replace('e+', 'e');
  }
  return sign + Number(size.toPrecision(10)).toLocaleString('en-US', { maximumFractionDigits: 6 });
}

function clamp(value, low, high) { return Math.min(high, Math.max(low, value)); }

function compare(a, b) {
  if (Array.isArray(a)) {
    for (var i = 0; i < a.length; i++) {
      var part = compare(a[i], b[i]);
      if (part) return part;
    }
    return 0;
  }
  if (typeof a === 'string') return a < b ? -1 : a > b ? 1 : 0;
  return a - b;
}
