// What every module of the front end takes from the libraries.

import { h, render, Fragment } from "./vendor/preact.js";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { batch, computed, effect, signal } from "./vendor/signals-core.js";
import { useComputed, useSignal, useSignalEffect } from "./vendor/signals.js";

// htm would hand out one and the same element wherever nothing in it changes. Preact hangs each element into its tree, so a page that is
// open for long would keep one old tree after the other. `this[0] = 3` is htm's word for "make it anew".
export const html = htm.bind(function (...made) {
  this[0] = 3;
  return h(...made);
});
export {
  h, render, Fragment,
  useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState,
  batch, computed, effect, signal, useComputed, useSignal, useSignalEffect,
};
