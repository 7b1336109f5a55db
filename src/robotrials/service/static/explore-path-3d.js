// three.js: lines for the paths, balls for where things are now, a box for the target.
import * as THREE from './vendor/three.module.min.js';
import { OrbitControls } from './vendor/orbit-controls.js';

export class Deep {
  constructor(place, path, lines, colour) {
    this.renderer = new THREE.WebGLRenderer({ antialias: true, alpha: true });
    this.renderer.setPixelRatio(devicePixelRatio || 1);
    place.append(this.renderer.domElement);
    this.place = place;
    this.scene = new THREE.Scene();
    this.scene.add(new THREE.HemisphereLight(0xffffff, 0x888888, 3));
    this.lines = lines;
    const box = new THREE.Box3();
    this.balls = lines.map((one, number) => {
      const points = one.path.map((p) => new THREE.Vector3(...p));
      points.forEach((p) => box.expandByPoint(p));
      const geometry = new THREE.BufferGeometry().setFromPoints(points);
      this.scene.add(new THREE.Line(geometry, new THREE.LineBasicMaterial({ color: colour(number) })));
      const ball = new THREE.Mesh(new THREE.SphereGeometry(number ? 0.012 : 0.018, 16, 12), new THREE.MeshLambertMaterial({ color: colour(number) }));
      this.scene.add(ball);
      return ball;
    });
    if (path.target) {
      const frame = new THREE.Mesh(new THREE.BoxGeometry(...path.target.size), new THREE.MeshBasicMaterial({ color: 0x3f8f6b, wireframe: true }));
      frame.position.set(...path.target.center);
      this.scene.add(frame);
    }
    const middle = box.getCenter(new THREE.Vector3());
    const reach = Math.max(box.getSize(new THREE.Vector3()).length(), 0.2);
    const faint = getComputedStyle(document.documentElement).getPropertyValue('--line').trim();
    const grid = new THREE.GridHelper(Math.ceil(reach * 5) / 5, 10, faint, faint);
    grid.rotation.x = Math.PI / 2;
    grid.position.set(middle.x, middle.y, Math.min(box.min.z, 0));
    this.scene.add(grid);
    this.camera = new THREE.PerspectiveCamera(40, 1, 0.01, 50);
    this.camera.up.set(0, 0, 1);
    this.camera.position.set(middle.x + reach * 0.92, middle.y - reach * 0.67, middle.z + reach * 0.75);
    this.controls = new OrbitControls(this.camera, this.renderer.domElement);
    this.controls.target.copy(middle);
    this.controls.addEventListener('change', () => this.draw());
    this.controls.update();
    new ResizeObserver(() => this.resize()).observe(place);
    this.resize();
    place.dataset.drawn = '3d';
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.place;
    this.renderer.setSize(width, height, false);
    this.camera.aspect = width / Math.max(height, 1);
    this.camera.updateProjectionMatrix();
    this.draw();
  }

  at(index) {
    this.lines.forEach((one, number) => this.balls[number].position.set(...one.path[Math.min(index, one.path.length - 1)]));
    this.draw();
  }

  draw() {
    this.renderer.render(this.scene, this.camera);
  }
}
