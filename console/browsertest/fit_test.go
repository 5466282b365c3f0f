package browsertest_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// shots names the folder for screenshots. It is read by TestPagesFit only.
const shots = "CONSOLE_SHOTS"

// screen is a size at which the pages are looked at.
type screen struct {
	name          string
	width, height int64
}

func screens() []screen {
	return []screen{{"desk", 1280, 800}, {"tablet", 820, 1180}, {"phone", 390, 844}}
}

// look sets the size of the screen and the colours.
func (b *browser) look(s screen, scheme string) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(s.width, s.height))
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	require.NoError(b.t, err)
}

// withoutScripts turns JavaScript off for the pages. The test itself can still look at them.
func (b *browser) withoutScripts() {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	require.NoError(b.t, err)
}

// address is a page of the shop in trouble, by a name for its picture.
type address struct{ name, page string }

func (s *shop) addresses(b *browser) []address {
	s.t.Helper()
	letter := func(box string) string {
		b.visit("dead?box=" + box)
		return read(b, chromedp.AttributeValue(chromedp.CSS("a.open"), "href")).Value
	}
	ofOutbox, ofInbox := letter("outbox"), letter("inbox")
	var message string
	require.NoError(s.t, s.DB.QueryRowContext(s.t.Context(), "SELECT message_key FROM inbox_dead WHERE consumer = 'billing' LIMIT 1").Scan(&message))
	b.visit("failures")
	cause := read(b, chromedp.AttributeValue(chromedp.CSS(`td a[href^="failure?"]`), "href")).Value
	b.visit("")
	outage := read(b, chromedp.AttributeValue(chromedp.CSS(`.findings a[href^="failure?"]`), "href")).Value
	b.visit("stuck")
	retry := read(b, chromedp.AttributeValue(chromedp.CSS(`a[href^="decide"]`), "href")).Value
	return []address{
		{"overview", ""}, {"dead", "dead?box=inbox"}, {"dead-filter", "dead?box=inbox&filter=1"}, {"dead-outbox", "dead?box=outbox"},
		{"letter", ofInbox}, {"letter-outbox", ofOutbox},
		{"confirm", "confirm?action=replay&ref=" + url.QueryEscape(strings.TrimPrefix(ofInbox, "letter?"))},
		{"edit", "edit?" + strings.TrimPrefix(ofInbox, "letter?")},
		{"bulk", "bulk?action=discard&box=inbox&error=currency"}, {"audit", "audit"}, {"delayed", "delayed"}, {"keys", "keys"}, {"tenants", "tenants"},
		{"tenants-pause", "tenants?form=pause&tenant=acme"}, {"consumer-pause", "consumer?name=billing&form=pause"},
		{"consumers", "consumers"}, {"consumer", "consumer?name=billing"}, {"processes", "processes"}, {"overview-day", "?span=24h"},
		{"stuck", "stuck"}, {"event", "event?id=" + message}, {"decide", retry}, {"search", "search"}, {"found", "search?q=o-201"},
		{"failures", "failures"}, {"failure", cause}, {"failure-note", cause + "&form=note"}, {"failure-archive", cause + "&form=archive"}, {"outage", outage},
		{"failures-archived", "failures?show=archived"}, {"bulk-retry", "bulk?action=retry&box=inbox&" + strings.TrimPrefix(outage, "failure?")},
	}
}

// Every page fits into the width of a phone, a tablet and a desk, also with the longest texts that the tables can have, and with scripts turned off. No
// name is broken in the middle of a word.
func TestPagesFit(t *testing.T) {
	s := newShop(t)
	s.stuckMessage("o-15555")
	s.fill()
	s.outage()
	b := open(t, s.serve())
	b.withoutScripts()
	pages := s.addresses(b)
	for _, screen := range screens() {
		schemes := []string{"light"}
		if screen.name == "phone" { // colours change no widths, so one screen is enough for the dark ones
			schemes = append(schemes, "dark")
		}
		for _, scheme := range schemes {
			b.look(screen, scheme)
			for _, p := range pages {
				b.visit(p.page)
				b.shoot(fmt.Sprintf("%s-%s-%s.png", p.name, screen.name, scheme))
				width := read(b, chromedp.Evaluate[int64]("document.documentElement.scrollWidth"))
				require.LessOrEqual(t, width, screen.width, "%s on a %s is wider than the screen", p.name, screen.name)
				require.Empty(t, read(b, chromedp.Evaluate[[]string](brokenWords)), "%s on a %s has words that are broken", p.name, screen.name)
				if screen.name == "desk" {
					require.Empty(t, read(b, chromedp.Evaluate[[]string](scrolled)), "%s on a %s has tables that must be scrolled", p.name, screen.name)
				}
			}
		}
	}
}

const (
	// brokenWords lists the words of the tables, the menu and the headings that go on in the next line.
	brokenWords = `(() => {
	const found = [];
	for (const cell of document.querySelectorAll("td, th, nav a, h1, h2, .button, button, .state, .live")) {
		const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
		for (let node = walker.nextNode(); node; node = walker.nextNode()) {
			if (node.parentElement.closest(".two, .id, .error, .kinds")) continue;
			for (const word of node.data.matchAll(/[\p{L}\p{N}]{2,20}/gu)) {
				const range = document.createRange();
				range.setStart(node, word.index);
				range.setEnd(node, word.index + word[0].length);
				if (new Set([...range.getClientRects()].map(r => Math.round(r.top))).size > 1) found.push(word[0]);
			}
		}
	}
	return found;
})()`

	// scrolled lists the tables that are wider than their place.
	scrolled = `[...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText.slice(0, 80))`

	// wholeRows counts the rows of the list that are on the screen whole, above the bar with the buttons.
	wholeRows = `(end => [...document.querySelectorAll("main tbody tr")].filter(e => e.getBoundingClientRect().bottom <= end).length)(
	document.querySelector(".bar")?.getBoundingClientRect().top ?? innerHeight)`
)

// A screen of 1280 by 800 has at least 15 rows of each list.
func TestAScreenHasManyRows(t *testing.T) {
	s := newShop(t)
	s.stuckMessage("o-15555")
	s.fill()
	b := open(t, s.serve())
	b.look(screens()[0], "light")
	for _, list := range []string{"dead?box=inbox", "dead?box=outbox", "delayed", "audit", "search?q=o-201"} {
		b.visit(list)
		require.GreaterOrEqual(t, read(b, chromedp.Evaluate[int](wholeRows)), 15, list)
	}
}

// An id is cut in a list. A click selects it whole, so it can be copied without a script.
func TestAnIDIsCopiedWhole(t *testing.T) {
	s := newShop(t)
	s.fill()
	b := open(t, s.serve())
	b.look(screens()[0], "light")
	b.visit("delayed")
	require.Positive(t, read(b, chromedp.Evaluate[int]("(e => e.scrollWidth - e.clientWidth)(document.querySelector('.delayed td:nth-child(7) .id'))")))
	b.click(".delayed tbody tr:first-child td:nth-child(7) .id")
	require.Len(t, strings.TrimSpace(read(b, chromedp.Evaluate[string]("getSelection().toString()"))), 36)
}

// A page that loads itself again stays where it was scrolled to, and keeps its filter.
func TestARefreshKeepsThePlace(t *testing.T) {
	s := newShop(t)
	s.fill()
	b := open(t, s.serveRefreshing(time.Second))
	b.look(screens()[0], "light")
	b.visit("audit?box=outbox")
	b.do(chromedp.Evaluate[chromedp.Void]("scrollTo(0, 300)"))
	loaded := read(b, chromedp.Evaluate[float64]("performance.timeOrigin"))
	require.Eventually(t, func() bool {
		again, err := chromedp.Run(b.ctx, chromedp.Evaluate[float64]("performance.timeOrigin"))
		return err == nil && again > loaded
	}, patience, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		at, err := chromedp.Run(b.ctx, chromedp.Evaluate[int]("Math.round(scrollY)"))
		return err == nil && at == 300
	}, patience, 50*time.Millisecond)
	require.Contains(t, read(b, chromedp.Evaluate[string]("location.href")), "audit?box=outbox")

	b.visit("stuck")
	b.follow(`a[href^="refresh?"]`)
	require.Zero(t, b.count(`meta[http-equiv=refresh]`))
	require.Contains(t, b.text(), "does not refresh")
}

// shoot takes a screenshot if somebody asked for it.
func (b *browser) shoot(name string) {
	b.t.Helper()
	folder := os.Getenv(shots)
	if folder == "" {
		return
	}
	shot := chromedp.CaptureScreenshot()
	if os.Getenv(shots+"_WHOLE") != "" {
		shot = chromedp.FullScreenshot(100)
	}
	picture := read(b, shot)
	require.NoError(b.t, os.WriteFile(filepath.Join(folder, name), picture, 0o600))
}

// fill has what a shop in trouble has.
func (s *shop) fill() {
	s.t.Helper()
	s.poisonEvent("o-20017", "publish order.placed: schema incompatible: field total_cents has no default")
	s.poisonEvent("o-20018", "publish order.placed: message of 5347291 bytes is larger than the broker's 5242880")
	for n := range 4 {
		s.poisonMessage(fmt.Sprintf("o-1%04d", n*37), "GBP")
	}
	s.poisonMessage("o-10999", strings.Repeat("long-words-without-a-space", 8))
	for _, statement := range []string{someDead, someDeadMessages, someBlocks, someUnknown, someDelayed, someTenants, someAudit, someConsumers} {
		_, err := s.DB.ExecContext(s.t.Context(), statement)
		require.NoError(s.t, err)
	}
}

// outage has a mail server that is away since some hours, and stops 400 ordering keys.
func (s *shop) outage() {
	s.t.Helper()
	for _, statement := range []string{someKeys, someFailing, someNote} {
		_, err := s.DB.ExecContext(s.t.Context(), statement)
		require.NoError(s.t, err)
	}
}

const (
	someKeys = `
INSERT INTO inbox_key (consumer, key_lock, tenant_id, state, due_at, ordering_key)
SELECT 'mailer', n, 'acme', 'FAILED', now() + (n - 1000) * interval '9 s', 'acme|order|' || n FROM generate_series(1001, 1400) n`
	someFailing = `
INSERT INTO inbox_parked (message_key, consumer, tenant_id, source, message_id, event_type, topic, ordering_key, content_type, event_metadata, payload,
	key_lock, attempts, error_message, failing_since, fingerprint, cause_since)
SELECT gen_random_uuid(), 'mailer', 'acme', 'shop', n::text, 'order.placed', 'order', 'acme|order|' || n, 'application/json', '{}', '{}',
	n, 4, 'smtp: dial tcp 10.0.4.' || n % 3 || ':25: connection refused', now() - interval '2 h', left(md5('smtp'), 16), now() - n * interval '7 s'
FROM generate_series(1001, 1400) n`
	someNote = `
INSERT INTO oncebox_failure (fingerprint, consumer, event_type, cause, note, noted_by, noted_at)
VALUES (left(md5('smtp'), 16), 'mailer', 'order.placed', 'smtp: connection refused', 'It restarts at 02:30. Wait five minutes, then retry all.',
	'bob@example.com', now() - interval '20 d')`
	someDead = `
INSERT INTO outbox_dead (seq, id, occurred_at, created_at, aggregate_version, schema_version, retry_count, crashes, aggregate_type, aggregate_id,
	content_type, event_metadata, lane, tenant_id, topic, event_type, source, ordering_key, payload, died_at, error_message, fingerprint)
SELECT 1000000 + n, gen_random_uuid(), now(), now(), n, 1, 5, 0, 'order', 'o-' || 20100 + n, 'application/json',
	json_build_object('correlation_id', 'req-' || 8000 + n, 'traceparent', '00-' || md5(n::text) || '-00f067aa0ba902b7-01'),
	n % 64, (ARRAY['acme', 'globex', 'initech'])[1 + n % 3], 'order', (ARRAY['order.placed', 'order.cancelled'])[1 + n % 2], 'shop', 'default|order|' || n,
	convert_to(json_build_object('order_id', n)::text, 'UTF8'), now() - n * n * interval '41 s',
	'publish order.placed: schema incompatible: field total_cents has no default, version ' || n,
	left(md5('relay' || n % 2), 16)
FROM generate_series(1, 38) n`
	someDeadMessages = `
INSERT INTO inbox_dead (message_key, consumer, tenant_id, source, message_id, event_type, topic, ordering_key, content_type, event_metadata, payload,
	error_message, key_lock, seq, holds, died_at, attempts, fingerprint)
SELECT gen_random_uuid(), (ARRAY['shipping', 'mailer', 'shipping'])[1 + n % 3], (ARRAY['acme', 'globex', 'initech'])[1 + n % 3], 'shop', n::text,
	'order.placed', 'order', 'k' || n, 'application/json', json_build_object('traceparent', '00-' || md5(n::text) || '-00f067aa0ba902b7-01'),
	'{"order": "o-7"}',
	CASE n % 3 WHEN 0 THEN 'no carrier for zone "' || n || '"' WHEN 1 THEN 'smtp 550: mailbox ' || n || ' unavailable'
		ELSE 'address has no postcode: order o-' || n END,
	n, n, n % 4 = 0, now() - n * interval '17 min', 1 + n % 9, left(md5('consumer' || n % 3), 16)
FROM generate_series(1, 70) n`
	someBlocks = `
INSERT INTO inbox_key (consumer, key_lock, tenant_id, state, due_at, ordering_key)
SELECT (ARRAY['shipping', 'mailer'])[1 + n % 2], n, 'acme', (ARRAY['FAILED', 'WAITING', 'FAILED'])[1 + n % 3], now() + interval '1 min', 'k' || n
FROM generate_series(100, 109) n`
	someUnknown = `
WITH k AS (
	INSERT INTO idempotency_keys (key_hash, tenant_id, state, fingerprint_tag, fingerprint, expires_at, locked_until, epoch)
	SELECT sha256(n::text::bytea), 'acme', 'unknown', 'x', '', now() + interval '1 day', now() - interval '3 min', 1 FROM generate_series(1, 2) n
	RETURNING key_hash)
INSERT INTO idempotency_step (key_hash, name, epoch, begun_at) SELECT key_hash, 'charge the card', 1, now() - interval '5 min' FROM k`
	someDelayed = `
INSERT INTO outbox_held (seq, id, occurred_at, created_at, aggregate_version, schema_version, retry_count, crashes, aggregate_type, aggregate_id,
	content_type, event_metadata, lane, tenant_id, topic, event_type, source, payload, not_before, retry_after)
SELECT 2000000 + n, gen_random_uuid(), now(), now(), 0, 1, 0, 0, 'order', 'o-' || 20100 + n, 'application/json', '{}', n % 64,
	(ARRAY['acme', 'globex'])[1 + n % 2], 'reminder', 'order.reminder_due', 'shop', '{}', now() + n * n * interval '11 min', now() + n * n * interval '11 min'
FROM generate_series(1, 20) n`
	someTenants = `
INSERT INTO outbox_tenant (tenant_id, grp, since) VALUES ('initech', 1, now() - interval '12 days'), ('globex', 2, now() - interval '3 hours')
ON CONFLICT (tenant_id) DO UPDATE SET grp = excluded.grp`
	someConsumers = `INSERT INTO inbox_consumer (consumer) VALUES ('mailer'), ('shipping')`
	someAudit     = `
INSERT INTO oncebox_audit (part, at, actor, action, event_id, tenant_id, topic, event_type, reason)
SELECT 'outbox', now() - n * interval '7 min', (ARRAY['ann@example.com', 'bob@example.com'])[1 + n % 2], (ARRAY['replay', 'discard', 'replay'])[1 + n % 3],
	gen_random_uuid(), 'acme', 'order', 'order.placed', (ARRAY['schema order-7 is registered', 'test data of 21 November', 'release 41 reads it'])[1 + n % 3]
FROM generate_series(0, 30) n`
)
