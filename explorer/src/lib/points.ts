/** Draws many points: by WebGL 2, or on a 2-D canvas where there is no WebGL. */

export interface View {
  /** The place in the middle, in map coordinates. */
  x: number;
  y: number;
  /** Pixels per unit of the map. */
  scale: number;
}

export interface Points {
  /** x and y of each point in turn. */
  places: Float32Array;
  /** Red, green, blue and opacity of each point, from 0 to 255. */
  colors: Uint8Array;
}

export interface Renderer {
  readonly kind: "webgl" | "canvas";
  set(points: Points): void;
  draw(view: View, width: number, height: number, ratio: number, size: number): void;
  release(): void;
}

const VERTEX = `#version 300 es
in vec2 place;
in vec4 color;
uniform vec2 middle;
uniform vec2 scale;
uniform float size;
out vec4 shade;
void main() {
  gl_Position = vec4((place - middle) * scale, 0.0, 1.0);
  gl_PointSize = size * (color.a > 0.95 ? 1.35 : 1.0);
  shade = color;
}`;

const FRAGMENT = `#version 300 es
precision mediump float;
in vec4 shade;
out vec4 result;
void main() {
  float distance = length(gl_PointCoord - 0.5) * 2.0;
  float alpha = shade.a * (1.0 - smoothstep(0.8, 1.0, distance));
  if (alpha < 0.01) discard;
  result = vec4(shade.rgb * alpha, alpha);
}`;

function compile(gl: WebGL2RenderingContext, kind: number, source: string): WebGLShader {
  const shader = gl.createShader(kind);
  if (!shader) throw new Error("No shader.");
  gl.shaderSource(shader, source);
  gl.compileShader(shader);
  if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader) ?? "The shader does not compile.");
  return shader;
}

class WebGLRenderer implements Renderer {
  readonly kind = "webgl";
  #program: WebGLProgram;
  #places: WebGLBuffer;
  #colors: WebGLBuffer;
  #n = 0;

  constructor(private readonly gl: WebGL2RenderingContext) {
    const program = gl.createProgram();
    gl.attachShader(program, compile(gl, gl.VERTEX_SHADER, VERTEX));
    gl.attachShader(program, compile(gl, gl.FRAGMENT_SHADER, FRAGMENT));
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error("The shaders do not link.");
    this.#program = program;
    this.#places = this.#attribute("place", 2, gl.FLOAT, false);
    this.#colors = this.#attribute("color", 4, gl.UNSIGNED_BYTE, true);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  #attribute(name: string, size: number, type: number, isNormalized: boolean): WebGLBuffer {
    const { gl } = this;
    const buffer = gl.createBuffer();
    const at = gl.getAttribLocation(this.#program, name);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.enableVertexAttribArray(at);
    gl.vertexAttribPointer(at, size, type, isNormalized, 0, 0);
    return buffer;
  }

  set({ places, colors }: Points): void {
    const { gl } = this;
    this.#n = places.length / 2;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.#places);
    gl.bufferData(gl.ARRAY_BUFFER, places, gl.STATIC_DRAW);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.#colors);
    gl.bufferData(gl.ARRAY_BUFFER, colors, gl.DYNAMIC_DRAW);
  }

  draw(view: View, width: number, height: number, ratio: number, size: number): void {
    const { gl } = this;
    gl.viewport(0, 0, width * ratio, height * ratio);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.useProgram(this.#program);
    gl.uniform2f(gl.getUniformLocation(this.#program, "middle"), view.x, view.y);
    gl.uniform2f(gl.getUniformLocation(this.#program, "scale"), (2 * view.scale) / width, (2 * view.scale) / height);
    gl.uniform1f(gl.getUniformLocation(this.#program, "size"), size * ratio);
    gl.drawArrays(gl.POINTS, 0, this.#n);
  }

  release(): void {
    this.gl.getExtension("WEBGL_lose_context")?.loseContext();
  }
}

class CanvasRenderer implements Renderer {
  readonly kind = "canvas";
  #points: Points = { places: new Float32Array(), colors: new Uint8Array() };

  constructor(private readonly context: CanvasRenderingContext2D) {}

  set(points: Points): void {
    this.#points = points;
  }

  draw(view: View, width: number, height: number, ratio: number, size: number): void {
    const { context } = this;
    const { places, colors } = this.#points;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    let last = -1;
    for (let i = 0; i < places.length / 2; i += 1) {
      const x = ((places[2 * i] ?? 0) - view.x) * view.scale + width / 2;
      const y = height / 2 - ((places[2 * i + 1] ?? 0) - view.y) * view.scale;
      if (x < -size || y < -size || x > width + size || y > height + size) continue;
      const at = 4 * i;
      const key = ((colors[at] ?? 0) << 24) | ((colors[at + 1] ?? 0) << 16) | ((colors[at + 2] ?? 0) << 8) | (colors[at + 3] ?? 0);
      if (key !== last) {
        context.fillStyle = `rgba(${colors[at]},${colors[at + 1]},${colors[at + 2]},${(colors[at + 3] ?? 255) / 255})`;
        last = key;
      }
      context.fillRect(x - size / 2, y - size / 2, size, size);
    }
  }

  release(): void {
    this.#points = { places: new Float32Array(), colors: new Uint8Array() };
  }
}

/** A renderer for a canvas; `?canvas` in the address asks for the one without WebGL. */
export function rendererFor(canvas: HTMLCanvasElement): Renderer {
  if (!new URLSearchParams(location.search).has("canvas")) {
    try {
      const gl = canvas.getContext("webgl2", { antialias: false, premultipliedAlpha: true, preserveDrawingBuffer: true });
      if (gl) return new WebGLRenderer(gl);
    } catch {
      // The canvas below draws the same points.
    }
  }
  const context = canvas.getContext("2d");
  if (!context) throw new Error("This browser can draw neither by WebGL nor on a canvas.");
  return new CanvasRenderer(context);
}
