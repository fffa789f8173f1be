/* A menu of the documentation's versions, from versions.json at the site's root; none without it. */
(async () => {
  const here = new URL(document.documentElement.dataset.content_root || './', location.href);
  const own = here.pathname.match(/\/(\d+(?:\.\d+)+\w*)\/$/), root = own ? new URL('..', here) : here;
  let names;
  try {
    names = await (await fetch(new URL('versions.json', root))).json();
  } catch {
    return; // a site that is opened from files, or built for one version
  }
  const place = document.querySelector('.sidebar-brand');
  if (!place || names.length < 2) return;
  const label = document.createElement('label'), select = document.createElement('select');
  label.textContent = 'Version ';
  for (const name of names) select.append(new Option(name, name, false, own ? name === own[1] : name === names[0]));
  select.addEventListener('change', () => {
    location.href = new URL(select.value + '/' + location.href.slice(here.href.length), root);
  });
  label.append(select);
  label.className = 'versions';
  place.after(label);
})();
