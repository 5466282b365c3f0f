package status

import (
	"time"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/consumers"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/outbox/adopt"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// Item is the JSON output of status. Scripts use the names, so they never change.
type Item struct {
	At           time.Time             `json:"at"`
	Outbox       OutboxItem            `json:"outbox"`
	Shares       []ShareItem           `json:"shares"`
	Relays       []RelayItem           `json:"relays"`
	Processes    []ProcessItem         `json:"processes"`
	Consumers    []consumers.Item      `json:"consumers"`
	ReadModels   []consumers.ModelItem `json:"projections"`
	Adopted      []adopt.State         `json:"adopted"`
	UnknownSteps int                   `json:"unknown_steps"`

	// selects is true if a tenant or topic is selected: numbers that are known only for all events are left out then.
	selects bool
	// program is named in texts with commands.
	program cli.Program
}

// OutboxItem has the numbers of the outbox. outbox/state.Stats says what each of them counts.
type OutboxItem struct {
	Backlog            int64   `json:"backlog"`
	New                int64   `json:"new"`
	Held               int64   `json:"held"`
	OldestAgeSeconds   float64 `json:"oldest_age_seconds"`
	Failed             int64   `json:"failed"`
	MostTries          int     `json:"most_tries"`
	Delayed            int64   `json:"delayed"`
	Paused             int64   `json:"paused"`
	TenantsPaused      int     `json:"tenants_paused"`
	Dead               int64   `json:"dead"`
	BlockedKeys        int64   `json:"blocked_keys"`
	Lanes              int     `json:"lanes"`
	BusyLanes          int     `json:"busy_lanes"`
	FreeLanes          int     `json:"free_lanes"`
	PartitionsMissing  int     `json:"partitions_missing"`
	SnapshotAgeSeconds float64 `json:"snapshot_age_seconds"`
	// The rates are the differences to the previous output of --watch; the first output has none.
	RecordedPerSecond *float64 `json:"recorded_per_second,omitempty"`
	LeftPerSecond     *float64 `json:"left_per_second,omitempty"`
}

// ShareItem has the numbers of one topic and one tenant.
type ShareItem struct {
	Topic  string `json:"topic"`
	Tenant string `json:"tenant"`
	New    int64  `json:"new"`
	Held   int64  `json:"held"`
	Paused int64  `json:"paused"`
	Dead   int64  `json:"dead"`
}

// RelayItem is a process with a relay. Alive is false for a process that has vanished within the last day.
type RelayItem struct {
	Owner string `json:"owner"`
	Group int16  `json:"group"`
	Alive bool   `json:"alive"`
	Lanes int    `json:"lanes"`
}

// statusOf makes the output. Its lists are empty and not nil, so that JSON has [] and scripts need not handle null.
func statusOf(p cli.Program, st *ops.Status, adopted []adopt.State, filter ops.Filter) *Item {
	o := &st.Outbox
	item := &Item{
		At: st.Traffic.At,
		Outbox: OutboxItem{
			Backlog: o.Backlog(), New: o.New, Held: o.Held, OldestAgeSeconds: o.OldestAge.Seconds(), Failed: o.Failed, MostTries: o.MostTries,
			Delayed: o.Delayed, Paused: o.Paused, TenantsPaused: o.TenantsPaused, Dead: o.Dead, BlockedKeys: o.Blocked,
			Lanes: o.Lanes, BusyLanes: o.BusyLanes, FreeLanes: o.FreeLanes,
			PartitionsMissing: o.PartitionsMissing, SnapshotAgeSeconds: o.SnapshotAge.Seconds(),
		},
		Shares: []ShareItem{}, Relays: []RelayItem{}, Processes: []ProcessItem{}, Consumers: []consumers.Item{}, ReadModels: []consumers.ModelItem{},
		Adopted: append([]adopt.State{}, adopted...), UnknownSteps: st.UnknownSteps, selects: filter.Tenant != "" || filter.Topic != "", program: p,
	}
	for _, s := range o.Shares {
		item.Shares = append(item.Shares, ShareItem(s))
	}
	for _, p := range st.Projectors {
		item.Relays = append(item.Relays, RelayItem{p.Owner, p.Group, p.Alive, p.Lanes})
	}
	for n := range st.Processes {
		item.Processes = append(item.Processes, processOf(&st.Processes[n]))
	}
	for n := range st.Consumers {
		item.Consumers = append(item.Consumers, consumers.ItemOf(&st.Consumers[n]))
	}
	for n := range st.ReadModels {
		item.ReadModels = append(item.ReadModels, consumers.ModelOf(&st.ReadModels[n]))
	}
	return item
}

// since computes the rates since an earlier reading. They stay nil for the first reading, and with a tenant or topic,
// because the counters are kept for the whole outbox only.
func (i *Item) since(now, before outboxstate.Traffic) {
	if recorded, left, ok := now.PerSecond(before); ok && !i.selects {
		i.Outbox.RecordedPerSecond, i.Outbox.LeftPerSecond = &recorded, &left
	}
}

// totals adds up the parked messages and dead letters of all consumers.
func (i *Item) totals() (parked, dead int) {
	for _, c := range i.Consumers {
		parked, dead = parked+c.Parked, dead+c.Dead
	}
	return parked, dead
}
