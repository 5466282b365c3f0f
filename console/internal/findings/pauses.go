package findings

import (
	"cmp"
	"slices"

	"github.com/oncebox/oncebox/console/internal/consumer"
	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/outlook"
	"github.com/oncebox/oncebox/console/internal/tenant"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
	"github.com/oncebox/oncebox/outbox/tenants"
)

// mostPauses is how many paused tenants have a line of their own: those for which most events wait.
const mostPauses = 5

// pauses returns a line for each paused tenant, with the number of events that wait until it is resumed.
func (f *Facts) pauses() (list []Finding) {
	waits := map[string]int64{}
	for _, s := range f.Outbox.Shares {
		waits[s.Tenant] += s.Paused
	}
	paused := slices.SortedStableFunc(slices.Values(f.Paused), func(a, b tenants.Pause) int { return cmp.Compare(waits[b.Tenant], waits[a.Tenant]) })
	for n := range paused {
		if n == mostPauses {
			text := words.Counted(int64(len(paused)-n), "other tenant is paused", "other tenants are paused") + "."
			return append(list, look(text, frame.Tenants, outlook.OfKind(ops.TenantPaused)))
		}
		p := &paused[n]
		line := look("is paused by "+p.Actor+" for "+words.Short(f.Now.Sub(p.Since))+": "+words.Cause(p.Reason)+". "+f.waiting(waits[p.Tenant]),
			tenant.Href(p.Tenant), outlook.OfKind(ops.TenantPaused))
		line.Who = []Link{{"The tenant " + p.Tenant, tenant.Href(p.Tenant)}}
		if f.Act {
			line.Acts = []Link{{"Resume " + p.Tenant + "…", tenant.Form(operator.Resume, p.Tenant)}}
		}
		list = append(list, line)
	}
	return list
}

// waiting says how many events wait until a tenant is resumed. If there are too many events to count all, none of a tenant may have been seen.
func (f *Facts) waiting(n int64) string {
	if o := f.Outbox; n == 0 && o.Backlog()+o.Paused+o.Delayed > outboxstate.Counted {
		return "How many events wait for that is not known."
	}
	return words.Counted(n, "event waits", "events wait") + " for that."
}

// pause returns the line about the pause of a consumer, with the number of messages that wait.
func (f *Facts) pause(r *consumer.Row) Finding {
	p, name := r.Pause, r.Stats.Consumer
	text := "is paused by " + p.Actor + " for " + words.Short(f.Now.Sub(p.Since)) + ": " + words.Cause(p.Reason) + "."
	if waits := r.Waits(); waits != "" {
		text += " " + words.Upper(waits) + "."
	}
	if !p.Until.IsZero() {
		text += " The pause ends by itself " + words.Ago(f.Now, p.Until) + "."
	}
	line := look(text, consumer.Href(name), outlook.OfKind(ops.ConsumerPaused))
	line.Who, line.Acts = who(name), f.resume(name)
	return line
}

// resume returns the button that leads to the form which resumes a consumer, for an actor who may do so.
func (f *Facts) resume(name string) []Link {
	if !f.Act {
		return nil
	}
	return []Link{{"Resume " + name + "…", consumer.FormOf(operator.Resume, name)}}
}
