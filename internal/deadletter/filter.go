package deadletter

import (
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// Where returns a filter as SQL conditions on d.
func (s *SQL) Where(f operator.DeadFilter) *pgsql.Where {
	w := &pgsql.Where{}
	for _, c := range []struct{ column, value string }{
		{"d.tenant_id", f.TenantID}, {"d.topic", f.Topic}, {"d.event_type", f.Type}, {"d.fingerprint", f.Fingerprint},
	} {
		if c.value != "" {
			w.Add(c.column+" = %s::text", c.value)
		}
	}
	switch {
	case f.Consumer == "":
	case s.Consumer == "":
		w.Add("false") // this box has no consumers, so no letter matches
	default:
		w.Add(s.Consumer+" = %s::text", f.Consumer)
	}
	if f.ID != "" {
		w.Add(s.ID+" = %s::uuid", f.ID)
	}
	if f.Error != "" {
		// The texts were cleaned when they were stored, so a pasted text matches only after the same cleaning.
		w.Add("strpos(d.error_message, %s::text) > 0", pgsql.CleanText(f.Error))
	}
	if !f.DiedFrom.IsZero() {
		w.Add("d.died_at >= %s::timestamptz", f.DiedFrom)
	}
	if !f.DiedBefore.IsZero() {
		w.Add("d.died_at < %s::timestamptz", f.DiedBefore)
	}
	return w
}
