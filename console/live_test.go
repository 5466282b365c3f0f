package console_test

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const refreshes = `<meta http-equiv="refresh" content="`

// Pages that show what changes load themselves again, with their filter and their place. Pages with a form never do.
func TestPagesLoadThemselvesAgain(t *testing.T) {
	s := newShop(t)
	s.failingMessage("o-1")
	s.killedEvents(1)
	b := s.serve(s.config())
	reader := b.as("bob", "read")
	for _, page := range []string{"", "stuck", "stuck?tenant=acme", "delayed", "audit", "audit?box=outbox", "tenants", "consumers", "consumer?name=billing"} {
		require.Contains(t, b.page(page).body, refreshes+`15">`, page)
	}
	letter := b.page("dead").links("letter?")[0]
	for _, page := range []string{
		"dead", "search", letter, b.page(letter).links("confirm?")[0], b.page(letter).links("edit?")[0], "bulk?action=replay",
		"tenants?form=pause", "tenants?form=pause&tenant=acme", "consumer?form=pause&name=billing",
		"stuck?filter=1", "delayed?filter=1", "audit?filter=1", b.page("stuck").links("decide?")[0],
	} {
		require.NotContains(t, b.page(page).body, refreshes, page)
	}
	require.Contains(t, reader.page("dead").body, refreshes, "who may only look has nothing to tick")
	require.NotContains(t, reader.page("dead?filter=1").body, refreshes)
	for _, page := range []string{"tenants?form=pause", "consumer?form=pause&name=billing"} {
		require.Contains(t, reader.page(page).body, refreshes, "who may only look has no form")
	}
	require.NotContains(t, b.get("delayed?tenant="+strings.Repeat("x", 300)).body, refreshes, "a mistake in the address stays")

	// The notice of the last action is shown once.
	require.Contains(t, b.page("stuck?done=retry&tenant=acme").body, refreshes+`15; url=stuck?tenant=acme">`)
}

func TestPagesOfAConsoleThatDoesNotRefresh(t *testing.T) {
	s := newShop(t)
	cfg := s.config()
	cfg.Refresh = time.Minute
	require.Contains(t, s.serve(cfg).page("").body, refreshes+`60">`)
	cfg = s.config()
	cfg.Refresh = -1
	a := s.serve(cfg).page("")
	require.NotContains(t, a.body, refreshes)
	require.Empty(t, a.links("refresh?"))
	cfg.Refresh = time.Millisecond
	require.ErrorContains(t, cfg.Validate(), "Config.Refresh is 1ms")
}

// An actor turns it off in the browser, and on again, and comes back to the same page.
func TestTheActorTurnsItOff(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	b.client = &http.Client{Jar: jar}
	a := b.page("stuck?tenant=acme")
	off := a.links("refresh?")
	require.Len(t, off, 1)
	a = b.page(off[0])
	require.True(t, strings.HasSuffix(a.at, "/admin/console/stuck?tenant=acme"), a.at)
	require.NotContains(t, a.body, refreshes)
	require.Contains(t, a.text(), "does not refresh")
	require.NotContains(t, b.page("").body, refreshes, "it counts for all pages")
	on := a.links("refresh?")
	require.Len(t, on, 1)
	require.Contains(t, b.page(on[0]).body, refreshes)

	for _, elsewhere := range []string{"https://evil.example/", "//evil.example/stuck", "/stuck", "../stuck", "act", "bulk?action=discard", "refresh", "%zz"} {
		a := b.page("refresh?" + url.Values{"to": {"off"}, "back": {elsewhere}}.Encode())
		require.True(t, strings.HasPrefix(a.at, b.base), "%s leads to %s", elsewhere, a.at)
		require.Equal(t, b.base, a.at, elsewhere)
	}
}
