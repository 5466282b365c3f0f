package browsertest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/operator"
)

// An operator filters, opens, replays and discards, with mouse and keyboard, on real dead letters.
func TestAnOperatorMendsThem(t *testing.T) {
	s := newShop(t)
	s.poisonEvent("o-1", "no schema for order.placed 7 "+hostile)
	s.poisonEvent("o-2", "the message is too large")
	s.poisonMessage("o-3", "GBP "+hostile)
	b := open(t, s.serve())

	b.visit("")
	require.Contains(t, b.text(), "2 events could not be published.")
	require.Contains(t, b.text(), "billing gave up 1 message: ")
	b.follow(`.findings a[href^="dead?box=outbox"]`)
	require.Equal(t, 2, b.count("table.letters tbody tr"))

	// Filter.
	b.follow(`a[href*="filter=1"]`)
	b.write(`input[name=error]`, "schema")
	b.follow("form.fields button")
	require.Equal(t, 1, b.count("table.letters tbody tr"))
	require.Contains(t, read(b, chromedp.Location()), "error=schema")
	require.Contains(t, b.text(), "no schema for order.placed 7 "+hostile, "text only")

	// Open, and look at the payload.
	b.follow("a.open")
	require.Contains(t, b.text(), `"currency": "EUR"`)

	// Replay.
	b.follow(`a[href^="confirm?action=replay"]`)
	b.write("textarea[name=reason]", "the schema is registered")
	b.follow("main button")
	require.Contains(t, b.text(), "1 dead letter was replayed.")
	s.Drain()
	require.EqualValues(t, 1, s.billed.Load())

	// Discard the selected.
	b.visit("dead?box=outbox")
	b.click("input[name=ref]")
	require.Equal(t, 1, b.count("input[name=ref]:checked"))
	b.follow(`button[value=discard]`)
	require.Contains(t, b.text(), "It is deleted for good")
	b.write("textarea[name=reason]", "a test of ours")
	b.follow("main button")
	require.Contains(t, b.text(), "1 dead letter was discarded.")
	require.Zero(t, b.count("table.letters tbody tr"))

	// Edit and replay.
	b.visit("dead?box=inbox")
	b.follow("a.open")
	b.follow(`a[href^="edit?"]`)
	b.write("textarea[name=payload]", `{"order": "o-3", "currency": "EUR"}`)
	b.write("textarea[name=reason]", "pounds were a typing error")
	b.follow("main button")
	require.Contains(t, b.text(), "1 dead letter was replayed.")
	s.Drain()
	require.EqualValues(t, 2, s.billed.Load())

	// Replay all that match, after a count.
	s.poisonMessage("o-4", "USD")
	b.visit("dead?box=inbox")
	b.follow(`a[href^="bulk?action=replay"]`)
	require.Contains(t, b.text(), "1 dead letter matches. Nothing has been changed yet.")
	b.write("textarea[name=reason]", "try again")
	b.follow("main button")
	b.do(chromedp.WaitVisible(chromedp.CSS(".notice")))
	require.Contains(t, b.text(), "1 replayed. The work is done.")

	events, err := s.App.Outbox.Audit(t.Context(), operator.AuditFilter{}, nil, 2)
	require.NoError(t, err)
	require.Equal(t, []string{"ann@example.com", "discard", "a test of ours"}, []string{events[0].Actor, string(events[0].Action), events[0].Reason})
	require.Equal(t, []string{"ann@example.com", "replay", "the schema is registered"}, []string{events[1].Actor, string(events[1].Action), events[1].Reason})
	messages, err := s.App.Inbox.Audit(t.Context(), operator.AuditFilter{}, nil, 2)
	require.NoError(t, err)
	require.Equal(t, []string{"ann@example.com", "replay", "try again"}, []string{messages[0].Actor, string(messages[0].Action), messages[0].Reason})
	require.Equal(t, []string{"ann@example.com", "edit", "pounds were a typing error"},
		[]string{messages[1].Actor, string(messages[1].Action), messages[1].Reason})
}

// A stuck key and a delayed event are mended with the page alone, a consumer is paused and resumed, and the whole life of an event is one page.
func TestAnOperatorMendsWhatWaits(t *testing.T) {
	s := newShop(t)
	s.stuckMessage("o-1")
	s.remind("o-2", time.Now().Add(48*time.Hour))
	b := open(t, s.serve())

	b.visit("stuck")
	require.Contains(t, b.text(), "the bank is closed: order o-1")
	require.Contains(t, b.text(), "wait behind it")
	b.follow(`a[href^="decide?action=retry"]`)
	b.write("textarea[name=reason]", "the bank is open")
	b.follow("main button")
	require.Contains(t, b.text(), "The message is tried now.")
	s.Drain()
	require.EqualValues(t, 2, s.billed.Load())

	b.visit("delayed")
	b.follow(`a[href^="decide?action=move"]`)
	b.do(chromedp.SetValue(chromedp.CSS("input[name=to]"), "2020-01-31T15:04"))
	b.write("textarea[name=reason]", "the customer asked for it today")
	b.follow("main button")
	require.Contains(t, b.text(), "The event was moved.")
	s.Drain()
	require.EqualValues(t, 3, s.billed.Load())

	b.visit("consumers")
	b.follow(`a[href^="consumer?form=pause"]`)
	b.write("input[name=for]", "2h")
	b.write("textarea[name=reason]", "the bank is closed")
	b.follow("main form button")
	require.Contains(t, b.text(), "The consumer is paused.")
	b.visit("")
	b.follow(`.findings a[href^="consumer?form=resume"]`)
	b.write("textarea[name=reason]", "it is open")
	b.follow("main form button")
	require.Contains(t, b.text(), "The consumer is resumed.")

	entries, err := s.App.Outbox.Audit(t.Context(), operator.AuditFilter{}, nil, 1)
	require.NoError(t, err)
	b.visit("event?id=" + entries[0].EventID)
	for _, want := range []string{"recorded", "reschedule, by ann@example.com", "published", "consumer billing"} {
		require.Contains(t, b.text(), want)
	}
}

// With the keyboard alone an operator searches for an order and comes to the life of its event.
func TestAnOperatorSearchesWithTheKeyboard(t *testing.T) {
	s := newShop(t)
	s.place("o-77", "EUR")
	s.Drain()
	s.place("o-78", "EUR")
	b := open(t, s.serve())
	b.visit("")
	b.tabTo("search")
	b.enter()
	require.Equal(t, "q", b.focused(), "the field has the focus")
	b.do(chromedp.KeyEvent("o-77"))
	b.enter()
	require.Contains(t, read(b, chromedp.Location()), "event?id=")
	for _, want := range []string{"order.placed", "recorded", "published", "handled", "default|o-77"} {
		require.Contains(t, b.text(), want)
	}
}

// With the keyboard alone, and without scripts, an operator finds an outage on the first page, understands it and retries all of it. A note about it is
// there when it comes back.
func TestAnOperatorEndsAnOutageWithTheKeyboard(t *testing.T) {
	const many = 12
	s := newShop(t)
	fail := func() {
		s.closed.Store(true)
		for n := range many {
			s.place(fmt.Sprint("o-", n), "EUR")
		}
		require.Len(t, s.DrainFailing(), many)
		s.closed.Store(false)
	}
	fail()
	b := open(t, s.serve())
	b.withoutScripts()
	b.visit("")
	// When a minute ends meanwhile, the figures of that minute show when the fault began.
	require.Regexp(t, `billing: 12.ordering keys fail, the bank is closed: order o-\d+ \(order\.placed\), (since \d\d:\d\d:\d\d, )?next try `, b.text())
	b.tabTo("failure?")
	b.enter()
	require.Contains(t, b.text(), "the bank is closed: order o-")
	page := strings.SplitN(read(b, chromedp.Location()), "/console/", 2)[1]

	b.visit(page + "&form=note#note")
	b.do(chromedp.KeyEvent("\t"))
	require.Equal(t, "note", b.focused(), "the first field of the form is the next")
	b.do(chromedp.KeyEvent("it opens at nine"))
	b.tabTo("button Store")
	b.enter()
	require.Contains(t, b.text(), "The note is stored.")

	b.tabTo("bulk?action=retry")
	b.enter()
	require.Contains(t, b.text(), "12 messages that failed match.")
	b.tabTo("reason")
	b.do(chromedp.KeyEvent("the bank is open"))
	b.tabTo("button Retry")
	b.enter()
	b.do(chromedp.WaitVisible(chromedp.CSS(".notice")))
	require.Contains(t, b.text(), "12 retried. The work is done.")
	s.Drain()
	require.EqualValues(t, many, s.billed.Load())

	fail()
	b.visit("")
	require.Contains(t, b.text(), "ann@example.com noted: it opens at nine")
}

// focused returns the address of the link, or the name of the field, that has the focus. A button is called "button" and its text.
func (b *browser) focused() string {
	b.t.Helper()
	const name = `(e => e.getAttribute("href") || e.name || (e.tagName === "BUTTON" ? "button " + e.innerText : ""))(document.activeElement)`
	return read(b, chromedp.Evaluate[string](name))
}

// tabTo presses the tabulator until something whose name begins like this has the focus.
func (b *browser) tabTo(begin string) {
	b.t.Helper()
	for n := 0; !strings.HasPrefix(b.focused(), begin); n++ {
		require.Less(b.t, n, 200, "nothing is called %s", begin)
		b.do(chromedp.KeyEvent("\t"))
	}
}

// enter presses the key, and waits for the next page.
func (b *browser) enter() {
	b.t.Helper()
	_, err := chromedp.RunResponse(b.ctx, chromedp.KeyEvent("\r"))
	require.NoError(b.t, err)
	b.do(chromedp.WaitVisible(chromedp.CSS("main")))
}
