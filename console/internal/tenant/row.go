package tenant

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/tenants"
)

const (
	// Lately is the time over which the console counts what a tenant sends now. Over a longer time a flood that has just begun looks smaller than it is.
	Lately = time.Minute
	// mostRows is how many tenants are shown. Paused tenants come in addition.
	mostRows = 50
	// mostTypes is how many types of a tenant are shown, the most frequent ones.
	mostTypes = 3
)

// Row is a tenant.
type Row struct {
	Tenant string
	// Pause is nil for a tenant that is not paused.
	Pause *tenants.Pause
	// Types are the types of its latest events, the most frequent first.
	Types []string
	// PerMinute is about how many events it recorded in a minute.
	PerMinute float64
	// Waiting is the number of its events that should be published, and ForPause of its events that wait until it is resumed.
	Waiting, ForPause int64
}

// Read lists the tenants that have recorded something in the last minute, have events that wait, or are paused: the busiest first.
func Read(ctx context.Context, events *outbox.Store, now time.Time) ([]Row, error) {
	rows := map[string]*Row{}
	of := func(tenant string) *Row {
		if rows[tenant] == nil {
			rows[tenant] = &Row{Tenant: tenant}
		}
		return rows[tenant]
	}
	paused, err := events.Tenants().Paused(ctx)
	if err != nil {
		return nil, err
	}
	for n := range paused {
		of(paused[n].Tenant).Pause = &paused[n]
	}
	loads, err := events.State().Loads(ctx, now.Add(-Lately))
	if err != nil {
		return nil, err
	}
	for n := range loads {
		r := of(loads[n].Tenant)
		r.PerMinute += loads[n].Events / Lately.Minutes()
		if len(r.Types) < mostTypes && !slices.Contains(r.Types, loads[n].Type) {
			r.Types = append(r.Types, loads[n].Type)
		}
	}
	st, err := events.State().Stats(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range st.Shares {
		if s.New+s.Held+s.Paused > 0 {
			r := of(s.Tenant)
			r.Waiting, r.ForPause = r.Waiting+s.New+s.Held, r.ForPause+s.Paused
		}
	}
	return busiest(rows), nil
}

// busiest returns the rows in their order. Beyond mostRows only paused tenants follow.
func busiest(rows map[string]*Row) (list []Row) {
	sorted := slices.SortedFunc(maps.Values(rows), func(a, b *Row) int {
		return cmp.Or(cmp.Compare(b.PerMinute, a.PerMinute), cmp.Compare(b.Waiting+b.ForPause, a.Waiting+a.ForPause), cmp.Compare(a.Tenant, b.Tenant))
	})
	for n, r := range sorted {
		if n < mostRows || r.Pause != nil {
			list = append(list, *r)
		}
	}
	return list
}

// Rate returns the events in a minute as the page shows them.
func (r Row) Rate() string {
	switch {
	case r.PerMinute == 0:
		return "0"
	case r.PerMinute < 10:
		return fmt.Sprintf("%.1f", r.PerMinute)
	default:
		return words.Group(int64(r.PerMinute + 0.5))
	}
}

// Pausing returns the address of the form that pauses the tenant, and Resuming of the form that resumes it.
func (r Row) Pausing() string  { return Form(operator.Pause, r.Tenant) }
func (r Row) Resuming() string { return Form(operator.Resume, r.Tenant) }

// Form returns the address of the form that pauses or resumes a tenant.
func Form(action operator.Action, tenant string) string {
	return frame.Address(frame.Tenants, url.Values{frame.FieldForm: {string(action)}, "tenant": {tenant}}) + "#" + string(action)
}

// Href returns the address of the place on the page of tenants where a paused tenant is.
func Href(tenant string) string { return frame.Tenants + "#tenant-" + url.PathEscape(tenant) }
