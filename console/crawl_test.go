package console_test

import (
	"context"
	"errors"
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/console"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

var linked = regexp.MustCompile(`(?:href|<form method="get" action)="([^"]*)"`)

// follow gets every page that an answer leads to, and it returns them. Each must exist, unless it is among known.
func (b *browser) follow(from answer, known map[string]bool) (pages []answer) {
	b.t.Helper()
	for _, m := range linked.FindAllStringSubmatch(from.body, -1) {
		to := html.UnescapeString(m[1])
		// A switch of the refresh leads back to the page that has it.
		if known[to] || strings.HasPrefix(to, "#") || strings.HasPrefix(to, "refresh?") {
			continue
		}
		known[to] = true
		a := b.get(to)
		require.Equal(b.t, http.StatusOK, a.status, "%s leads to %s: %s", from.at, to, a.text())
		if _, place, isPlace := strings.Cut(to, "#"); isPlace {
			id, err := url.PathUnescape(place)
			require.NoError(b.t, err)
			require.Contains(b.t, a.body, `id="`+html.EscapeString(id)+`"`, "%s leads to %s", from.at, to)
			// A browser that goes to a place of a page focuses nothing, and complains. The next Tab leads to the first field there.
			require.NotContains(b.t, a.body, " autofocus", "%s leads to %s", from.at, to)
		}
		pages = append(pages, a)
	}
	return pages
}

// crawl follows every link of the console.
func (b *browser) crawl() {
	b.t.Helper()
	known := map[string]bool{}
	for ahead := []answer{b.page("")}; len(ahead) > 0; ahead = ahead[1:] {
		ahead = append(ahead, b.follow(ahead[0], known)...)
	}
	require.Contains(b.t, known, "audit")
}

// send fills in a form of a page and sends it. The answer, and every page that it leads to, must exist.
func (b *browser) send(page, to string, fill url.Values) {
	b.t.Helper()
	form := b.page(page).form()
	form["action"], form["token"] = form["action"][:min(1, len(form["action"]))], form["token"][:1]
	form.Set("reason", "mended")
	maps.Copy(form, fill)
	a := b.post(to, form)
	require.Equal(b.t, http.StatusOK, a.status, "%s: %s", page, a.text())
	require.NotContains(b.t, a.text(), "An error ended it", page)
	b.follow(a, map[string]bool{})
}

// first returns the first link on a page that begins like this.
func (b *browser) first(page, begin string) string {
	b.t.Helper()
	links := b.page(page).links(begin)
	require.NotEmpty(b.t, links, "%s has no %s", page, begin)
	return links[0]
}

// Every link leads to a page that exists: whatever there is, and whatever an operator has just done to it.
func TestEveryLinkLeadsToAPage(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	s.killedEvents(3)
	s.killedMessages(3)
	s.failingMessage("o-1")
	s.remind("o-8", time.Now().Add(time.Hour))
	s.remind("o-9", time.Now().Add(time.Hour))
	s.unknownStep("k-1")
	partner := s.App.Inbox.Wrap("ledger", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return errors.New("not open") }))
	for source, id := range map[string]string{"partner": "order-7", "other": "order-8"} { // no UUIDs, and of one key
		m := messaging.NewMessage(event.Envelope{
			ID: id, Source: source, TenantID: "default", Topic: "partner", Type: "paid", OccurredAt: time.Now(), Delivery: event.Delivery{OrderingKey: "k"},
		}, 1, nil)
		require.NoError(t, partner.Handle(t.Context(), m))
	}
	b.crawl()

	b.send("tenants?form=pause", "tenants", url.Values{"tenant": {"acme"}})
	b.send("consumer?name=billing&form=pause", "consumers", nil)
	b.crawl()
	b.send("tenants?form=resume&tenant=acme", "tenants", nil)
	b.send("consumer?name=billing&form=resume", "consumers", nil)
	b.send("keys", "keys", url.Values{"outcome": {"not_done"}, "result": {""}})
	b.send(b.first("delayed", "decide?action=move"), "decide", url.Values{"to": {"2h"}})
	b.send(b.first("delayed", "decide?action=cancel"), "decide", nil)
	for _, cause := range b.page("failures?show=failing").links("failure?") {
		b.send(cause+"&form=note", "failure", url.Values{"note": {"known"}})
		b.send(cause+"&form=note", "failure", url.Values{"note": {""}})
		b.send(cause+"&form=archive", "failure", nil)
		b.send(cause, "failure", url.Values{"action": {"unarchive"}})
	}
	b.send(b.first("stuck", "decide?action=retry"), "decide", nil)
	b.send(b.first("stuck", "decide?action=give-up"), "decide", nil)
	for _, box := range []string{"dead?box=outbox", "dead?box=inbox"} {
		b.send(b.first(b.first(box, "letter?"), "edit?"), "edit", url.Values{"payload": {`{"order": "o-7"}`}})
		b.send(b.first(b.first(box, "letter?"), "confirm?action=discard"), "act", nil)
	}
	s.killedEvents(1)
	for _, action := range []string{"bulk?action=replay", "bulk?action=discard"} {
		for _, cause := range b.page("failures?show=dead").links("failure?") {
			b.send(b.first(cause, action), "bulk", nil)
		}
		s.DrainFailing()
		s.killedEvents(1)
		s.killedMessages(1)
	}
	b.crawl()

	// A console need not show all parts, and what operators did is about all.
	for _, cfg := range []*console.Config{{Outbox: s.App.Outbox}, {Inbox: s.App.Inbox}, {Idempotency: s.App.Idempotency}} {
		s.serve(cfg).crawl()
	}
}
