// What every module of the front end takes from the libraries.

import { h, render, Fragment } from "./vendor/preact.js";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { batch, computed, effect, signal } from "./vendor/signals-core.js";
import { useComputed, useSignal, useSignalEffect } from "./vendor/signals.js";

export const html = htm.bind(h);
export {
  h, render, Fragment,
  useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState,
  batch, computed, effect, signal, useComputed, useSignal, useSignalEffect,
};
