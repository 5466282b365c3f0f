package console_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/console"
)

func TestNoConsoleWithoutAnAuthorizer(t *testing.T) {
	s := newShop(t)
	_, err := console.New(s.DB, nil, s.config())
	require.ErrorContains(t, err, "authorize is nil")
	_, err = console.New(nil, byHeader, &console.Config{Secret: []byte("short"), TraceURL: "javascript:{trace_id}"})
	for _, part := range []string{"db is nil", "Outbox, Inbox and Idempotency are nil", "Secret has 5 bytes", "TraceURL"} {
		require.ErrorContains(t, err, part)
	}
}

// paths are all that is answered.
func paths() (get, post []string) {
	return []string{
		"", "dead", "dead?box=inbox", "audit", "delayed", "keys", "tenants", "consumers", "search", "search?q=o-1", "refresh?to=off",
		"console.css", "icon.svg", "nothing", "letter?box=outbox&id=7",
	}, []string{"confirm", "act", "bulk", "edit", "keys", "tenants", "consumers"}
}

func TestNothingIsShownToThoseWhoMayNotRead(t *testing.T) {
	s := newShop(t)
	all := s.serve(s.config())
	get, post := paths()
	for name, b := range map[string]*browser{
		"nobody": all.as("", ""), "somebody without a right": all.as("eve", ""), "who may act and not read": all.as("eve", "act"),
	} {
		for _, page := range get {
			a := b.get(page)
			require.Equal(t, http.StatusForbidden, a.status, "%s: %s", name, page)
			require.Equal(t, "You have no access to this page.\n", a.body)
		}
		for _, page := range post {
			require.Equal(t, http.StatusForbidden, b.post(page, nil).status, "%s: %s", name, page)
		}
	}
	for _, actor := range []string{"", strings.Repeat("x", 256)} {
		require.Equal(t, http.StatusServiceUnavailable, all.as(actor, "read,act").get("").status, "an actor without a name for the audit")
	}
}

func TestAnAuthorizerThatFailsLetsNobodyIn(t *testing.T) {
	s := newShop(t)
	page, err := console.New(s.DB, func(*http.Request) (console.Access, error) {
		return console.Access{Actor: "ann", Read: true, Act: true}, errors.New("the directory is away, password hunter2")
	}, s.config())
	require.NoError(t, err)
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.NotContains(t, w.Body.String(), "hunter2")
}

func TestReadersChangeNothing(t *testing.T) {
	s := newShop(t)
	s.killedEvents(1)
	b := s.serve(s.config())
	form := b.page(b.page(b.page("dead").links("letter?")[0]).links("confirm?action=discard")[0]).form()
	form.Set("reason", "no reason")
	reader := b.as(b.actor, "read") // with the token of the same actor, who lost the right
	_, post := paths()
	for _, page := range post {
		a := reader.post(page, form)
		require.Equal(t, http.StatusForbidden, a.status, page)
		require.Contains(t, a.text(), "Nothing was changed")
	}
	list := reader.page("dead")
	require.Len(t, list.links("letter?"), 1, "it is still there")
	require.NotContains(t, list.body, `<form method="post"`)
	require.NotContains(t, list.body, `name="token"`)
	require.NotContains(t, reader.page(list.links("letter?")[0]).body, "Replay…")
}

func TestAReadOnlyPageChangesNothing(t *testing.T) {
	s := newShop(t)
	s.killedEvents(1)
	writable := s.config()
	writable.Secret = []byte(strings.Repeat("s", 32))
	readOnly := *writable
	readOnly.ReadOnly = true
	b := s.serve(writable)
	form := b.page(b.page(b.page("dead").links("letter?")[0]).links("confirm?action=discard")[0]).form()
	form.Set("reason", "no reason")
	other := s.serve(&readOnly)
	_, post := paths()
	for _, page := range post {
		a := other.post(page, form)
		require.Equal(t, http.StatusForbidden, a.status, page)
		require.Contains(t, a.text(), "This page is read-only")
	}
	require.Len(t, other.page("dead").links("letter?"), 1)
	require.NotContains(t, other.page("dead").body, `<form method="post"`)
	require.Equal(t, http.StatusOK, b.post("act", form).status, "the same form, where it may be sent")
}

func TestAChangeNeedsTheActorsOwnToken(t *testing.T) {
	s := newShop(t)
	s.killedEvents(1)
	b := s.serve(s.config())
	letter := b.page("dead").links("letter?")[0]
	form := func(b *browser) url.Values {
		f := b.page(b.page(letter).links("confirm?action=discard")[0]).form()
		f.Set("reason", "no reason")
		return f
	}
	mine := form(b)
	ours := s.serve(s.config()) // another process, with a secret of its own
	for name, token := range map[string]string{
		"none": "", "rubbish": "AAAA", "too short": mine.Get("token")[:20], "of another actor": form(b.as("eve@example.com", "read,act")).Get("token"),
		"of another process": form(ours).Get("token"), "changed": "A" + mine.Get("token")[1:] + "",
	} {
		f := url.Values{}
		for name := range mine {
			f.Set(name, mine.Get(name))
		}
		f.Set("token", token)
		if name == "changed" {
			f.Set("token", mine.Get("token")[:len(mine.Get("token"))-2]+"xx")
		}
		_, post := paths()
		for _, page := range post {
			a := b.post(page, f)
			require.Equal(t, http.StatusForbidden, a.status, "%s: %s", name, page)
			require.Contains(t, a.text(), "Nothing was changed")
		}
	}
	stolen := b.post("act", mine)
	require.Equal(t, http.StatusOK, stolen.status, "with the token it is done")
}

func TestAChangeFromAnotherSiteIsRefused(t *testing.T) {
	s := newShop(t)
	s.killedEvents(1)
	b := s.serve(s.config())
	form := b.page(b.page(b.page("dead").links("letter?")[0]).links("confirm?action=discard")[0]).form()
	form.Set("reason", "no reason")
	for _, headers := range []map[string]string{
		{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}, {"Origin": "null"},
	} {
		other := *b
		other.headers = headers
		a := other.post("act", form)
		require.Equal(t, http.StatusForbidden, a.status, headers)
		require.Contains(t, a.text(), "The form comes from another site")
	}
	b.headers = map[string]string{"Sec-Fetch-Site": "same-origin"}
	require.Equal(t, http.StatusOK, b.post("act", form).status)
}

func TestEveryAnswerHasTheSecurityHeaders(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	get, _ := paths()
	for _, page := range append(get, "?", "letter") {
		for _, who := range []*browser{b, b.as("eve", "")} {
			h := who.get(page).header
			require.Equal(t, "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
				h.Get("Content-Security-Policy"), page)
			require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
			require.Equal(t, "DENY", h.Get("X-Frame-Options"))
			require.Equal(t, "same-origin", h.Get("Referrer-Policy"))
			require.Equal(t, "same-origin", h.Get("Cross-Origin-Opener-Policy"))
			require.Equal(t, "same-origin", h.Get("Cross-Origin-Resource-Policy"))
			require.Equal(t, "no-store", h.Get("Cache-Control"), page)
		}
	}
	for _, page := range []string{"", "dead", "audit", "keys", "delayed", "tenants", "consumers", "search"} {
		body := b.page(page).body
		require.NotContains(t, body, "<script", page)
		require.NotContains(t, body, "style=", "the policy forbids styles in the page")
		require.NotContains(t, body, " onclick", page)
	}
	sheet := b.page("").links("console.css?")[0]
	require.Contains(t, b.page(sheet).header.Get("Cache-Control"), "immutable")
	require.Equal(t, "text/css; charset=utf-8", b.page(sheet).header.Get("Content-Type"))
}

func TestItIsMountedBelowAnyPrefix(t *testing.T) {
	s := newShop(t)
	page, err := console.New(s.DB, byHeader, s.config())
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/", page)
	mux.Handle("/plain/", http.StripPrefix("/plain", page))
	mux.Handle("/deep/er/", page)
	mux.Handle("/exact", http.StripPrefix("/exact", page))
	mux.Handle("/exact/", http.StripPrefix("/exact", page))
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, prefix := range []string{"/", "/plain/", "/deep/er/", "/exact/", "/exact"} {
		b := &browser{t: t, base: server.URL, actor: "ann", rights: "read"}
		a := b.page(prefix)
		require.True(t, strings.HasSuffix(a.at, "/"), "%s leads to %s", prefix, a.at)
		require.Contains(t, a.text(), "Overview")
		b.base = a.at
		require.Contains(t, b.page("dead").text(), "There is no dead letter.")
		require.Contains(t, b.page(b.page("dead").links("console.css")[0]).body, ":root")
	}
	b := s.serve(s.config())
	b.base = strings.TrimSuffix(b.base, "/")
	require.True(t, strings.HasSuffix(b.page("").at, "/admin/console/"), "chi.Mount")
}
