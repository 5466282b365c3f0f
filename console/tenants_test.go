package console_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
)

// pauseForm is that of the page of tenants: with the token, without a tenant and a reason.
func (b *browser) pauseForm() url.Values {
	b.t.Helper()
	require.NotContains(b.t, b.page("tenants").body, "<form")
	page := b.page(b.page("tenants").links("tenants?")[0])
	require.Contains(b.t, page.body, `name="action" value="pause"`)
	return page.form()
}

func TestATenantIsPausedAndResumed(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	require.Contains(t, b.page("tenants").text(), "No tenant is paused. Seen lately Nothing was stored in the last minute, and no event waits.")
	form := b.pauseForm()
	form.Set("tenant", "acme")
	require.Equal(t, http.StatusUnprocessableEntity, b.post("tenants", form).status, "a reason is missing")
	form.Set("reason", "their <b>system</b> is down")
	done := b.post("tenants", form)
	require.Equal(t, http.StatusOK, done.status, done.text())
	require.Contains(t, done.text(), "The tenant is paused.")
	require.Contains(t, done.body, "their &lt;b&gt;system&lt;/b&gt; is down")
	require.Contains(t, done.text(), "ann@example.com")
	again := b.post("tenants", form)
	require.Equal(t, http.StatusConflict, again.status)
	require.Contains(t, again.text(), "is paused already")

	s.placeWith("o-1", event.WithTenantID("acme"))
	s.place("o-2")
	s.Drain()
	require.EqualValues(t, 1, s.billed.Load())
	first := b.page("")
	require.Regexp(t, `look The tenant acme is paused by ann@example\.com for .*: their <b>system</b> is down\. 1 event waits for that\.`, first.text())
	require.Equal(t, []string{"tenants#tenant-acme", "tenants#tenant-acme", "tenants?form=resume&tenant=acme#resume"}, first.links("tenants")[1:])
	require.Contains(t, first.text(), "0 wait for their time, 1 for the end of a pause")
	require.Empty(t, b.as("bob", "read").page("").links("tenants?"), "bob may look only")
	seen := b.page("tenants")
	require.Contains(t, seen.text(), "acme paused Waiting for that 1 event Since")
	require.Contains(t, seen.text(), "acme paused 1.0 order.placed 0 1 default 1.0 order.placed 0 0 Pause…")
	require.Equal(t, []string{
		"tenants?form=resume&tenant=acme#resume", "tenants?form=pause&tenant=default#pause", "tenants?form=pause#pause",
	}, seen.links("tenants?"))
	require.Contains(t, seen.body, `id="tenant-acme"`)
	require.Contains(t, b.page("tenants?form=pause&tenant=default").body, `name="tenant" value="default"`)
	resume := b.page("tenants?form=resume&tenant=acme").form()
	require.Equal(t, []string{"resume", "acme"}, []string{resume.Get("action"), resume.Get("tenant")})
	stuck := b.page("stuck")
	require.Contains(t, stuck.text(), "Nothing is stuck. Paused by an operator, so their events wait until somebody resumes them : tenant acme,")
	require.Contains(t, stuck.text(), "by ann@example.com: their <b>system</b> is down")
	var waiting string
	require.NoError(t, s.DB.QueryRowContext(t.Context(), "SELECT id FROM outbox_unsent").Scan(&waiting))
	require.Contains(t, b.page("event?id="+waiting).text(), "tenant paused by ann@example.com, because their <b>system</b> is down")
	reader := b.as("bob", "read").page("tenants")
	require.Contains(t, reader.text(), "acme")
	require.NotContains(t, reader.body, "<form method=\"post\"")

	form.Set("action", "resume")
	done = b.post("tenants", form)
	require.Contains(t, done.text(), "The tenant is resumed.")
	require.Equal(t, http.StatusConflict, b.post("tenants", form).status)
	s.Drain()
	require.NotContains(t, b.page("stuck").text(), "Paused by an operator")
	require.NotContains(t, b.page("event?id="+waiting).text(), "tenant paused")
	require.EqualValues(t, 2, s.billed.Load())
	entries, err := s.App.Outbox.Audit(t.Context(), operator.AuditFilter{}, nil, 5)
	require.NoError(t, err)
	require.Equal(t, []string{"resume", "pause"}, []string{string(entries[0].Action), string(entries[1].Action)})
	require.Equal(t, []string{"ann@example.com", "acme"}, []string{entries[0].Actor, entries[0].TenantID})
	require.Contains(t, b.page("audit").text(), "acme")
}

func TestPausesOfTenantsAreRefused(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	form := b.pauseForm()
	form.Set("tenant", "acme")
	form.Set("reason", "x")
	for field, value := range map[string]string{"action": "stop", "tenant": "", "token": "", "reason": strings.Repeat("x", 3000)} {
		wrong := maps.Clone(form)
		wrong.Set(field, value)
		require.GreaterOrEqual(t, b.post("tenants", wrong).status, 400, field)
	}
	require.Equal(t, http.StatusForbidden, b.as("bob", "read").post("tenants", form).status)
	require.Equal(t, http.StatusForbidden, b.as("eve", "read,act").post("tenants", form).status, "the token is ann's")
	cfg := s.config()
	cfg.ReadOnly = true
	require.Equal(t, http.StatusForbidden, s.serve(cfg).post("tenants", form).status)
	paused, err := s.App.Outbox.Tenants().Paused(t.Context())
	require.NoError(t, err)
	require.Empty(t, paused)
}

// A tenant that is paused for longer than a day may be forgotten: it is among what is stuck, and that leads on.
func TestALongPauseIsStuck(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	require.NoError(t, s.App.Outbox.Tenants().Pause(t.Context(), "acme", operator.By{Actor: "ann", Reason: "night"}))
	require.Contains(t, b.page("stuck").text(), "Nothing is stuck.")
	_, err := s.DB.Exec("UPDATE outbox_tenant SET paused_at = now() - interval '25 hours' WHERE paused_at IS NOT NULL")
	require.NoError(t, err)
	a := b.page("stuck")
	require.Contains(t, a.text(), "paused by ann: night")
	require.NotEmpty(t, a.links("tenants"))
	require.Contains(t, b.page("stuck?topic=order").text(), "Nothing is stuck.")
}
