// Decode the page's data: base64, gzip, JSON, and the typed arrays in it. Sizes are checked here, so nothing else has to.
const TYPES = {
  u8: Uint8Array, i8: Int8Array, i16: Int16Array, i32: Int32Array, f32: Float32Array,
};
const LISTS_OF_SCENE = { grid: ['types', 'resources', 'vibes'], frames: ['images'], observation: ['parts'] };

class Damaged extends Error {}
class TooOld extends Error {}

async function readData() {
  const text = document.getElementById('data').textContent;
  if (typeof DecompressionStream === 'undefined') throw new TooOld('it has no DecompressionStream');
  let data;
  try {
    const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream('gzip'));
    data = JSON.parse(await new Response(stream).text());
  } catch (error) {
    throw new Damaged(`its packed data cannot be read (${error.message}); the file is incomplete or was changed`);
  }
  if (!data || typeof data !== 'object') throw new Damaged('it is empty');
  if (data.format !== 1) throw new Damaged(`its format is ${data.format}, and this page reads format 1`);
  checkLists(data, ['choices', 'numbers', 'memory', 'agent_colors', 'tracks']);
  checkLists(data.scene || {}, LISTS_OF_SCENE[data.scene?.kind] || []);
  data.tracks = data.tracks.map((track, index) => readTrack(data, track, `tracks[${index}]`)).filter((track) => track.steps > 0);
  if (!data.tracks.length) throw new Damaged('it has no recorded steps');
  return data;
}

function bytesOf(base64) {
  const text = atob(base64.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

// Return the values of an array of the page. A size of the expected shape that is null may be anything.
function readArray(array, shape, name) {
  if (array === null || array === undefined) {
    if (shape.includes(0)) return new Float32Array(0);
    throw new Damaged(`${name} is missing`);
  }
  const Type = TYPES[array.type];
  if (!Type) throw new Damaged(`${name} has the unknown type ${array.type}`);
  const fits = shape.every((size, axis) => size === null || array.shape[axis] === size);
  if (!fits) throw new Damaged(`${name} has the shape [${array.shape}], not [${shape}]`);
  let bytes;
  try {
    bytes = bytesOf(array.data);
  } catch (error) {
    throw new Damaged(`${name} cannot be read (${error.message})`);
  }
  const size = array.shape.reduce((a, b) => a * b, 1);
  if (bytes.length !== size * Type.BYTES_PER_ELEMENT) {
    throw new Damaged(`${name} has ${bytes.length} bytes, and its shape needs ${size * Type.BYTES_PER_ELEMENT}`);
  }
  return new Type(bytes.buffer);
}

function checkLists(object, keys) {
  for (const key of keys) if (!Array.isArray(object[key])) throw new Damaged(`the list "${key}" is missing`);
}

function readTrack(data, track, name) {
  checkLists(track, ['episodes', 'memory']);
  const [T, A] = [track.steps, track.agents];
  const read = (key, ...rest) => readArray(track[key], [T, A, ...rest], `${name}.${key}`);
  const options = data.choices.reduce((sum, choice) => sum + choice.options.length, 0);
  const decoded = {
    env: track.env, agents: A, steps: T, episodes: track.episodes,
    chosen: read('chosen', data.choices.length),
    probabilities: read('probabilities', options),
    number: read('number', data.numbers.length),
    mean: read('mean', data.numbers.length),
    std: read('std', data.numbers.length),
    value: read('value'), reward: read('reward'), valid: read('valid'),
    memory: data.memory.map((entry, i) => readArray(track.memory[i], [T, A, entry.units], `${name}.memory[${i}]`)),
    influence: read('influence', data.lookback),
    scene: track.scene,
  };
  decoded.episodeAt = episodesByStep(decoded, name);
  decoded.fromPast = largestFromPast(data, decoded);
  readScene(data.scene, decoded, `${name}.scene`);
  return decoded;
}

function readScene(about, track, name) {
  if (!about || !track.scene) throw new Damaged(`${name} is missing`);
  if (about.kind === 'frames') {
    track.scene.index = readArray(track.scene.index, [track.steps], `${name}.index`);
    return;
  }
  if (about.kind === 'observation') {
    const values = track.scene.values;
    track.scene.values = readArray(values, [track.steps, track.agents], `${name}.values`);
    track.scene.perAgent = values.shape.slice(2).reduce((a, b) => a * b, 1);
    return;
  }
  if (about.kind !== 'grid') throw new Damaged(`its kind of scene, ${about.kind}, is unknown`);
  if (!Array.isArray(track.scene.moves) || track.scene.moves.length !== track.steps) {
    throw new Damaged(`${name}.moves does not have one entry for each of ${track.steps} steps`);
  }
}

// Return the index of the episode of every step.
function episodesByStep(track, name) {
  const result = new Int32Array(track.steps).fill(-1);
  track.episodes.forEach((episode, index) => result.fill(index, episode.start, episode.start + episode.length));
  if (result.includes(-1)) throw new Damaged(`${name}.episodes do not cover all of ${track.steps} steps`);
  return result;
}

function stepOfEpisode(track, step) {
  return step - track.episodes[track.episodeAt[step]].start;
}

// Return how many steps back the influence of observations on the action at `step` was measured: memory is not older.
function measuredBack(data, track, step) {
  const kept = data.memory_scope === 'lifetime' ? step : stepOfEpisode(track, step);
  return Math.min(kept, data.lookback - 1);
}

// Return the earlier step whose observation moved the action at `step` most, or null if none did noticeably.
function strongestPast(data, track, step, agent) {
  const at = step * track.agents + agent;
  if (!track.valid[at]) return null;
  let best = null;
  for (let back = 1; back <= measuredBack(data, track, step); back++) {
    const influence = track.influence[at * data.lookback + back] / 255;
    if (influence >= data.smallest_influence && (!best || influence > best.influence)) best = { back, step: step - back, influence };
  }
  return best;
}

// Return for every step and agent the influence (0 to 1) of its strongest past.
function largestFromPast(data, track) {
  return Float32Array.from(track.valid, (_, at) => {
    const past = strongestPast(data, track, Math.floor(at / track.agents), at % track.agents);
    return past ? past.influence : 0;
  });
}

function agentColor(data, agent) {
  return data.agent_colors[agent % data.agent_colors.length];
}

function returnSoFar(track, step, agent) {
  let sum = 0;
  for (let t = track.episodes[track.episodeAt[step]].start; t <= step; t++) sum += track.reward[t * track.agents + agent];
  return sum;
}
