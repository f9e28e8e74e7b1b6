// An old address: go to the new one, and to the part of it that was asked for.
(() => {
  "use strict";
  const link = document.querySelector("a");
  if (location.hash) link.hash = location.hash;
  location.replace(link.href);
})();
