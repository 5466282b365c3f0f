package console_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// audits are entries of each part.
var audits = map[string]string{
	"outbox": "INSERT INTO oncebox_audit (part, actor, action, reason, tenant_id, topic, event_type) " +
		"VALUES ('outbox', ?, ?, ?, 'acme', 'order', 'order.placed')",
	"inbox": "INSERT INTO oncebox_audit (part, actor, action, reason, tenant_id, topic, event_type, consumer) " +
		"VALUES ('inbox', ?, ?, ?, 'acme', 'order', 'order.placed', 'billing')",
	"idempotency": "INSERT INTO oncebox_audit (part, actor, action, reason, tenant_id, key_hash, step, epoch) " +
		"VALUES ('idempotency', ?, ?, ?, 'acme', sha256('k'), 'charge', 1)",
}

// Each action of each part is on the page.
func TestTheAuditHasAllThatWasDecided(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	require.Contains(t, b.page("audit?box=inbox").text(), "Nothing was done here.")
	_, err := s.DB.ExecContext(t.Context(), "DELETE FROM oncebox_audit") // what the kit has done
	require.NoError(t, err)
	require.Contains(t, b.page("audit").text(), "Nothing was done: neither in the outbox nor at consumers, nor with the keys of requests.")
	wanted := 0
	source, err := os.ReadFile("../operator/action.go")
	require.NoError(t, err)
	actions := regexp.MustCompile(`(?m)^\s*[A-Z][A-Za-z]+\s+Action = "([a-z_]+)"`).FindAllStringSubmatch(string(source), -1)
	for pkg, statement := range audits {
		for _, action := range actions {
			_, err := s.DB.ExecContext(t.Context(), statement, "actor of "+pkg, action[1], pkg+" "+action[1])
			require.NoError(t, err)
			wanted++
		}
	}
	require.GreaterOrEqual(t, wanted, 3*15)
	all := b.page("audit").text()
	for pkg := range audits {
		require.Contains(t, all, "actor of "+pkg)
	}
	require.Equal(t, min(wanted, 50), strings.Count(all, "actor of "), "a page")
	for box, pkg := range map[string]string{"outbox": "outbox", "inbox": "inbox", "keys": "idempotency"} {
		one := b.page("audit?box=" + box).text()
		require.Equal(t, len(actions), strings.Count(one, "actor of "+pkg), box)
		require.Equal(t, len(actions), strings.Count(one, "actor of "), box)
	}
	require.Equal(t, http.StatusBadRequest, b.get("audit?box=attic").status)
	require.Equal(t, http.StatusBadRequest, b.get("audit?before=1.2").status)
	require.Equal(t, http.StatusBadRequest, b.get("audit?id=x").status)
}

// An action on many messages is one row, however many entries it has. Another reason, another actor and another action are rows of their own.
func TestAnActionOnManyMessagesIsOneRow(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	add := func(actor, action, reason string, count int) {
		t.Helper()
		_, err := s.DB.ExecContext(t.Context(), `INSERT INTO oncebox_audit (part, actor, action, reason, tenant_id, topic, event_type, consumer, event_id)
			SELECT 'inbox', ?, ?, ?, 'acme', 'order', 'order.placed', 'billing', gen_random_uuid()
			FROM generate_series(1, ?::int)`, actor, action, reason, count)
		require.NoError(t, err)
	}
	add("ann", "pause", "first of all", 1)
	add("ann", "retry", "mail works", 436)
	add("ann", "retry", "mail works again", 1)
	add("bob", "retry", "mail works again", 2)
	add("bob", "discard", "mail works again", 1)
	page := b.page("audit?box=inbox")
	require.Regexp(t, `(?s)bob.*discard.*bob.*retry 2.*ann.*retry.*mail works again.*ann.*retry 436.*mail works.*ann.*pause.*first of all`, page.text())
	require.Empty(t, page.links("audit?before"))
	require.Len(t, page.links("event?id="), 3, "a single entry leads to its event")
}

// The pages of all parts together have each entry once, the newest first.
func TestTheAuditIsPagedOverAllParts(t *testing.T) {
	s := newShop(t)
	const each = 40
	for n := range each {
		for pkg, statement := range audits {
			_, err := s.DB.ExecContext(t.Context(), statement, "ann", "replay", fmt.Sprintf("%s entry %d.", pkg, n))
			require.NoError(t, err)
		}
	}
	b := s.serve(s.config())
	seen, pages := map[string]bool{}, 0
	last := map[string]int{"outbox": each, "inbox": each, "idempotency": each}
	for next := []string{"audit"}; len(next) > 0; pages++ {
		a := b.page(next[len(next)-1])
		for _, m := range regexp.MustCompile(`(outbox|inbox|idempotency) entry (\d+)\.`).FindAllStringSubmatch(a.text(), -1) {
			require.False(t, seen[m[0]], m[0])
			seen[m[0]] = true
			var n int
			_, err := fmt.Sscan(m[2], &n)
			require.NoError(t, err)
			require.Less(t, n, last[m[1]])
			last[m[1]] = n
		}
		next = a.links("audit?before")
	}
	require.Len(t, seen, 3*each)
	require.Equal(t, 3, pages)
}

// The outcome of a step that an operator has found out is in the audit.
func TestDecisionsAboutKeysAreInTheAudit(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	s.unknownStep("k-1")
	form := b.page("keys").form()
	form.Set("outcome", "not_done")
	form.Set("reason", "the bank has no such charge")
	require.Equal(t, http.StatusOK, b.post("keys", form).status)
	text := b.page("audit").text()
	for _, part := range []string{"ann@example.com", "not_done", "step charge", "the bank has no such charge"} {
		require.Contains(t, text, part)
	}
	cfg := s.config()
	cfg.Outbox, cfg.Inbox = nil, nil
	require.Contains(t, s.serve(cfg).page("audit").text(), "the bank has no such charge", "keys alone have an audit, too")
}
