// Drawings of objects and agents. The data says which one a type has, its colour and its mark: see grid_looks.py.
const OUTLINE = 'rgba(0, 0, 0, .55)';

function shape(ctx, points, color) {
  ctx.beginPath();
  points.forEach(([x, y], i) => (i ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
  ctx.closePath();
  paint(ctx, color);
}

function box(ctx, x, y, width, height, radius, color) {
  ctx.beginPath();
  ctx.roundRect(x, y, width, height, radius);
  paint(ctx, color);
}

function disc(ctx, x, y, radius, color) {
  ctx.beginPath();
  ctx.arc(x, y, radius, 0, 2 * Math.PI);
  paint(ctx, color);
}

function paint(ctx, color) {
  ctx.fillStyle = color;
  ctx.fill();
  ctx.strokeStyle = OUTLINE;
  ctx.stroke();
}

// Every drawing fills the square from 0 to 1. `mark` is where a mark is written: x, y, size.
const GLYPHS = {
  altar: {
    mark: [0.5, 0.79, 0.26],
    draw(ctx, color) {
      box(ctx, 0.18, 0.62, 0.64, 0.3, 0.04, color);
      box(ctx, 0.1, 0.5, 0.8, 0.14, 0.04, color);
      ctx.beginPath();
      ctx.moveTo(0.5, 0.48);
      ctx.bezierCurveTo(0.1, 0.22, 0.34, 0.0, 0.5, 0.19);
      ctx.bezierCurveTo(0.66, 0.0, 0.9, 0.22, 0.5, 0.48);
      paint(ctx, '#e0475a');
    },
  },
  mine: {
    mark: [0.5, 0.56, 0.3],
    draw(ctx, color) {
      shape(ctx, [[0.28, 0.16], [0.72, 0.16], [0.92, 0.42], [0.5, 0.9], [0.08, 0.42]], color);
      ctx.beginPath();
      ctx.moveTo(0.08, 0.42);
      ctx.lineTo(0.92, 0.42);
      ctx.moveTo(0.28, 0.16);
      ctx.lineTo(0.38, 0.42);
      ctx.lineTo(0.5, 0.9);
      ctx.moveTo(0.72, 0.16);
      ctx.lineTo(0.62, 0.42);
      ctx.lineTo(0.5, 0.9);
      ctx.stroke();
    },
  },
  generator: {
    mark: [0.8, 0.8, 0.3],
    draw(ctx, color) {
      box(ctx, 0.1, 0.1, 0.8, 0.8, 0.14, color);
      shape(ctx, [[0.56, 0.16], [0.26, 0.56], [0.46, 0.56], [0.4, 0.86], [0.74, 0.42], [0.53, 0.42]], '#fff3b0');
    },
  },
  chest: {
    mark: [0.5, 0.74, 0.26],
    draw(ctx, color) {
      box(ctx, 0.1, 0.2, 0.8, 0.64, 0.1, color);
      ctx.beginPath();
      ctx.moveTo(0.1, 0.46);
      ctx.lineTo(0.9, 0.46);
      ctx.stroke();
      box(ctx, 0.42, 0.38, 0.16, 0.18, 0.03, '#fff3b0');
    },
  },
  door: {
    mark: [0.5, 0.42, 0.36],
    draw(ctx, color) {
      ctx.beginPath();
      ctx.moveTo(0.16, 0.94);
      ctx.lineTo(0.16, 0.38);
      ctx.arc(0.5, 0.38, 0.34, Math.PI, 0);
      ctx.lineTo(0.84, 0.94);
      ctx.closePath();
      paint(ctx, color);
      disc(ctx, 0.7, 0.66, 0.05, '#fff3b0');
    },
  },
  cue: {
    mark: [0.5, 0.34, 0.46],
    draw(ctx, color) {
      box(ctx, 0.45, 0.5, 0.1, 0.44, 0.02, '#7a5c3d');
      box(ctx, 0.08, 0.1, 0.84, 0.48, 0.08, color);
    },
  },
  goal: {
    mark: [0.5, 0.54, 0.28],
    draw(ctx, color) {
      const points = [];
      for (let i = 0; i < 10; i++) {
        const [radius, angle] = [i % 2 ? 0.21 : 0.47, (i * Math.PI) / 5 - Math.PI / 2];
        points.push([0.5 + radius * Math.cos(angle), 0.53 + radius * Math.sin(angle)]);
      }
      shape(ctx, points, color);
    },
  },
  key: {
    mark: [0.32, 0.34, 0.24],
    draw(ctx, color) {
      shape(ctx, [[0.42, 0.5], [0.5, 0.42], [0.9, 0.82], [0.82, 0.9], [0.74, 0.82], [0.67, 0.89], [0.59, 0.81], [0.66, 0.74]], color);
      disc(ctx, 0.32, 0.34, 0.23, color);
    },
  },
  factory: {
    mark: [0.5, 0.5, 0.3],
    draw(ctx, color) {
      const points = [];
      for (let i = 0; i < 24; i++) {
        const [radius, angle] = [i % 4 < 2 ? 0.45 : 0.34, (i * Math.PI) / 12];
        points.push([0.5 + radius * Math.cos(angle), 0.5 + radius * Math.sin(angle)]);
      }
      shape(ctx, points, color);
      disc(ctx, 0.5, 0.5, 0.17, '#fff3b0');
    },
  },
  button: {
    mark: [0.5, 0.5, 0.34],
    draw(ctx, color) {
      box(ctx, 0.12, 0.12, 0.76, 0.76, 0.16, '#9aa4af');
      disc(ctx, 0.5, 0.5, 0.27, color);
    },
  },
  food: {
    mark: [0.5, 0.58, 0.34],
    draw(ctx, color) {
      disc(ctx, 0.5, 0.56, 0.34, color);
      shape(ctx, [[0.5, 0.24], [0.6, 0.08], [0.74, 0.08], [0.64, 0.22]], '#6c8f1f');
    },
  },
  hazard: {
    mark: [0.5, 0.68, 0.4],
    draw(ctx, color) {
      shape(ctx, [[0.5, 0.1], [0.93, 0.88], [0.07, 0.88]], color);
    },
  },
  other: {
    mark: [0.5, 0.52, 0.42],
    draw(ctx, color) {
      box(ctx, 0.1, 0.1, 0.8, 0.8, 0.2, color);
    },
  },
};

function drawGlyph(ctx, look, x, y, size) {
  const glyph = GLYPHS[look.glyph];
  ctx.save();
  ctx.translate(x, y);
  ctx.scale(size, size);
  ctx.lineWidth = Math.min(0.06, 1 / size);
  ctx.lineJoin = 'round';
  glyph.draw(ctx, look.color);
  ctx.restore();
  if (look.mark) drawMark(ctx, look, look.mark, x, y, size);
}

function drawMark(ctx, look, mark, x, y, size) {
  const [markX, markY, markSize] = GLYPHS[look.glyph].mark;
  if (size * markSize < 6) return;
  label(ctx, mark, x + markX * size, y + markY * size, {
    color: readableOn(look.color), size: markSize * size * (mark.length > 1 ? 0.85 : 1), weight: 700, align: 'center', baseline: 'middle',
  });
}

// What an object or an agent shows to others.
function drawVibe(ctx, look, mark, x, y, size) {
  if (look.glyph !== 'agent') {
    if (!look.mark) drawMark(ctx, look, mark, x, y, size);
    return;
  }
  if (size < 20) return;
  ctx.lineWidth = 1;
  disc(ctx, x + size * 0.8, y + size * 0.2, size * 0.19, theme.paper);
  label(ctx, mark, x + size * 0.8, y + size * 0.21, { color: theme.ink, size: size * 0.24, weight: 700, align: 'center', baseline: 'middle' });
}

function drawAgent(ctx, index, color, x, y, size, selected) {
  const [cx, cy, radius] = [x + size / 2, y + size / 2, size * 0.38];
  if (selected) {
    ctx.beginPath();
    ctx.arc(cx, cy, radius + Math.max(2, size * 0.09), 0, 2 * Math.PI);
    ctx.lineWidth = Math.max(1.5, size * 0.07);
    ctx.strokeStyle = theme.ink;
    ctx.stroke();
  }
  ctx.lineWidth = Math.max(0.5, size * 0.03);
  disc(ctx, cx, cy, radius, color);
  if (size >= 13) {
    label(ctx, String(index), cx, cy + size * 0.02, { color: readableOn(color), size: size * 0.42, weight: 700, align: 'center', baseline: 'middle' });
  }
}
