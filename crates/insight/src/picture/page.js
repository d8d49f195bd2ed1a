"use strict";
const timelines = JSON.parse(document.getElementById("timelines").textContent);
const colours = ["#2f7d4f", "#8a4fbf", "#c2a01a"];
const tip = document.getElementById("tip");
const lane = 22;

function time(us) {
  if (us < 1e3) return us.toFixed(1) + " µs";
  if (us < 1e6) return (us / 1e3).toFixed(2) + " ms";
  return (us / 1e6).toFixed(3) + " s";
}

function sized(canvas, height) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.height = height + "px";
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return [context, width];
}

function overview(canvas, line) {
  const height = 46;
  const [context, width] = sized(canvas, height);
  const step = width / line.columns.length;
  line.columns.forEach((column, at) => {
    let top = height;
    column.forEach((share, which) => {
      const tall = Math.min(top, share / 1000 * height);
      context.fillStyle = colours[which];
      context.fillRect(at * step, top - tall, step + 0.6, tall);
      top -= tall;
    });
  });
  context.strokeStyle = "#1d2228";
  context.lineWidth = 1.5;
  const from = line.from_us / line.length_us * width;
  context.strokeRect(from, 1, Math.max(2, line.window_us / line.length_us * width), height - 2);
}

function drawing(canvas, line) {
  const whole = Math.max(line.window_us, 1e-3);
  const view = { from: 0, span: whole };
  const height = line.streams.length * lane + 20;
  const draw = () => {
    const [context, width] = sized(canvas, height);
    context.font = "11px system-ui, sans-serif";
    const scale = width / view.span;
    for (const [start, duration, name, stream, which] of line.spans) {
      const x = (start - view.from) * scale;
      const wide = duration * scale;
      if (x > width || x + wide < 0) continue;
      context.fillStyle = colours[which];
      context.fillRect(x, stream * lane + 2, Math.max(wide, 0.5), lane - 5);
      if (wide > 42) {
        context.save();
        context.beginPath();
        context.rect(x, stream * lane, wide - 3, lane);
        context.clip();
        context.fillStyle = "#fff";
        context.fillText(line.names[name], Math.max(x, 0) + 3, stream * lane + 14);
        context.restore();
      }
    }
    context.fillStyle = "#66707a";
    for (let tick = 0; tick <= 6; tick++) {
      const x = tick / 6 * width;
      context.textAlign = tick === 0 ? "left" : tick === 6 ? "right" : "center";
      context.fillText(time(view.from + tick / 6 * view.span), x, height - 5);
    }
    context.textAlign = "left";
  };
  const clamp = () => {
    view.span = Math.min(Math.max(view.span, 0.5), whole);
    view.from = Math.min(Math.max(view.from, 0), whole - view.span);
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const at = event.offsetX / canvas.clientWidth;
    const centre = view.from + at * view.span;
    view.span *= event.deltaY > 0 ? 1.25 : 0.8;
    clamp();
    view.from = centre - at * view.span;
    clamp();
    draw();
  }, { passive: false });
  let held = null;
  canvas.addEventListener("mousedown", (event) => { held = event.clientX; });
  window.addEventListener("mouseup", () => { held = null; });
  canvas.addEventListener("dblclick", () => { view.from = 0; view.span = whole; draw(); });
  canvas.addEventListener("mousemove", (event) => {
    if (held !== null) {
      view.from -= (event.clientX - held) / canvas.clientWidth * view.span;
      held = event.clientX;
      clamp();
      draw();
    }
    const at = view.from + event.offsetX / canvas.clientWidth * view.span;
    const stream = Math.floor(event.offsetY / lane);
    const reach = view.span / canvas.clientWidth;
    const hit = line.spans.find((span) => span[3] === stream && at >= span[0] - reach && at <= span[0] + span[1] + reach);
    tip.hidden = !hit;
    if (hit) {
      tip.textContent = line.names[hit[2]] + ": " + time(hit[1]) + ", stream " + line.streams[hit[3]] + ", at " + time(hit[0]);
      tip.style.left = Math.min(event.clientX + 12, window.innerWidth - 470) + "px";
      tip.style.top = event.clientY + 14 + "px";
    }
  });
  canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
  draw();
  return draw;
}

const redraws = [];
document.querySelectorAll("canvas.overview").forEach((canvas) => {
  const draw = () => overview(canvas, timelines[canvas.dataset.at]);
  redraws.push(draw);
  draw();
});
document.querySelectorAll("canvas.window").forEach((canvas) => {
  redraws.push(drawing(canvas, timelines[canvas.dataset.at]));
});
window.addEventListener("resize", () => redraws.forEach((draw) => draw()));
