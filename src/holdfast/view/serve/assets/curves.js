// Arithmetic of curves.

// The exponential moving average of a curve, without the bias of its start. Of a thinned curve, it is taken over the means
// of groups of rows, with the weight that as many rows have.
export function smoothed(points, weight) {
  const thinned = points.mean_x.length > 0;
  const [x, y] = thinned ? [points.mean_x, points.mean_y] : [points.x, points.y];
  const keep = weight ** points.group;
  let [sum, total] = [0, 0];
  const out = y.map((value) => {
    sum = keep * sum + (1 - keep) * value;
    total = keep * total + (1 - keep);
    return sum / total;
  });
  return { x, y: out };
}

// The value of a curve at or before a place; null before it begins.
export function at(curve, place) {
  let [low, high] = [0, curve.x.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (curve.x[middle] <= place) low = middle + 1;
    else high = middle;
  }
  return low ? { x: curve.x[low - 1], y: curve.y[low - 1] } : null;
}

// A range of values that leaves out few far-off ones and those below a floor, or null if there are none.
export function usualRange(curves, floor) {
  const values = curves.flatMap((curve) => curve.y).filter(Number.isFinite).sort((a, b) => a - b);
  if (values.length < 20) return null;
  const quantile = (share) => values[Math.min(values.length - 1, Math.floor(share * values.length))];
  const [low, high] = [quantile(0.03), quantile(0.97)];
  const [least, most] = [values[0], values[values.length - 1]];
  if (least < floor && most > floor) return [floor, most + 0.05 * (most - floor)];
  if (high <= low || most - least < 4 * (high - low)) return null;
  const margin = 0.3 * (high - low);
  return [Math.max(least, low - margin), Math.min(most, high + margin)];
}
