package status

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/consumers"
	"github.com/oncebox/oncebox/ops"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// mostShares is how many topics and tenants are printed. JSON has all of them.
const mostShares = 10

// print prints the numbers, and below them topics, consumers and read models.
func (i *Item) print(to io.Writer) error {
	if err := cli.Columns(to, i.numbers()); err != nil {
		return err
	}
	for _, table := range [][][]string{i.processes(), i.shares(), i.consumers(), i.models(), i.adopted()} {
		if len(table) == 0 {
			continue
		}
		if _, err := fmt.Fprintln(to); err != nil {
			return err
		}
		if err := cli.Columns(to, table); err != nil {
			return err
		}
	}
	return nil
}

// numbers returns the numbers of the outbox, of dead messages and of requests. Rows about refused, delayed and paused
// events, blocked keys, missing partitions and long transactions appear only if there are any. Dead events and messages
// have a row even at 0: the operator looks for it.
func (i *Item) numbers() [][]string {
	o := &i.Outbox
	rows := [][]string{{"events waiting", fmt.Sprintf("%s: %s new, %s held", count(o.Backlog), count(o.New), count(o.Held))}}
	add := func(name, text string) { rows = append(rows, []string{name, text}) }
	// The age is known for all events only, so a selection has none.
	if !i.selects {
		add("oldest", cli.Age(o.OldestAgeSeconds))
	}
	if o.RecordedPerSecond != nil {
		add("per second", fmt.Sprintf("%.1f recorded, %.1f left", *o.RecordedPerSecond, *o.LeftPerSecond))
	}
	if o.Failed > 0 {
		add("refused", fmt.Sprintf("%s, the most often %d times", count(o.Failed), o.MostTries))
	}
	if o.Delayed > 0 {
		add("delayed", count(o.Delayed))
	}
	if o.TenantsPaused > 0 {
		add("paused", fmt.Sprintf("%s of %s: %s", count(o.Paused), cli.Several(o.TenantsPaused, "tenant", "tenants"), i.program.Typed("tenants", "list")))
	}
	add("dead events", count(o.Dead))
	if o.BlockedKeys > 0 {
		add("blocked keys", count(o.BlockedKeys))
	}
	_, dead := i.totals()
	add("dead messages", count(int64(dead)))
	add("unknown steps", count(int64(i.UnknownSteps)))
	add("lanes", fmt.Sprintf("%d: events wait in %d, %d have no relay", o.Lanes, o.BusyLanes, o.FreeLanes))
	add("relays", i.relays())
	if o.PartitionsMissing > 0 {
		add("days without a partition", strconv.Itoa(o.PartitionsMissing))
	}
	// From a minute on it is worth a row. From ops.LongTransaction on it keeps published events from being removed, and
	// the text says what to do.
	switch long := o.SnapshotAgeSeconds; {
	case long > ops.LongTransaction.Seconds():
		add("oldest transaction", cli.Age(long)+": the outbox becomes slower; what it is, and what ends it: "+i.program.Typed("doctor"))
	case long > 60:
		add("oldest transaction", cli.Age(long))
	}
	return rows
}

// relays names the running and the vanished processes, because "none runs" and "one has died"
// need different answers.
func (i *Item) relays() string {
	var running, gone []string
	for _, r := range i.Relays {
		if r.Alive {
			running = append(running, fmt.Sprintf("%s (%d lanes)", cli.Short(r.Owner, 40), r.Lanes))
		} else {
			gone = append(gone, cli.Short(r.Owner, 40))
		}
	}
	text := "none runs"
	if len(running) > 0 {
		text = strings.Join(running, ", ")
	}
	if len(gone) > 0 {
		text += "; vanished: " + strings.Join(gone, ", ")
	}
	return text
}

// The list is sorted by size already. JSON has all shares, so a script is not cut off.
// shares returns the largest shares by topic and tenant. The column of paused events appears only if a tenant is paused.
func (i *Item) shares() [][]string {
	if len(i.Shares) == 0 {
		return nil
	}
	header, paused := []string{"TOPIC", "TENANT", "NEW", "HELD", "DEAD"}, i.Outbox.TenantsPaused > 0
	if paused {
		header = append(header, "PAUSED")
	}
	rows := [][]string{header}
	for n, s := range i.Shares {
		if n == mostShares {
			return append(rows, []string{fmt.Sprintf("and %d others", len(i.Shares)-n)})
		}
		row := []string{cli.Short(s.Topic, 40), cli.Short(s.Tenant, 40), count(s.New), count(s.Held), count(s.Dead)}
		if paused {
			row = append(row, count(s.Paused))
		}
		rows = append(rows, row)
	}
	return rows
}

// consumers returns a row for each consumer. With a filter the numbers of keys are unknown, and "-" stands for them.
func (i *Item) consumers() [][]string {
	if len(i.Consumers) == 0 {
		return nil
	}
	rows := [][]string{{"CONSUMER", "RUNS", "PARKED", "OLDEST", "FAILING KEYS", "KEYS BEHIND DEAD", "DEAD", "AT BROKER"}}
	for n := range i.Consumers {
		c := &i.Consumers[n]
		// Keys are counted over all tenants and topics, so with one selected the number would be too high.
		failed, dead := strconv.Itoa(c.KeysFailed), strconv.Itoa(c.KeysDead)
		if i.selects {
			failed, dead = "-", "-"
		}
		rows = append(rows, []string{
			cli.Short(c.Consumer, 40), c.HowItRuns(), c.Count(c.Parked), cli.Age(c.OldestAgeSeconds), failed, dead, c.Count(c.Dead), c.AtBroker(),
		})
	}
	return rows
}

// models returns the read models that are not up to date, nil if all are: then the table is left out.
func (i *Item) models() [][]string {
	var rows [][]string
	for n := range i.ReadModels {
		p := &i.ReadModels[n]
		if p.State == consumers.ModelLive {
			continue
		}
		if rows == nil {
			rows = [][]string{{"PROJECTION", "STATE", "EVENTS", "WAITING"}}
		}
		rows = append(rows, []string{cli.Short(p.Name, 40), p.State, strconv.FormatInt(p.Events, 10), cli.UpTo(p.Waiting, 10_000)})
	}
	return rows
}

// count formats a number. Above the bound of the count it is an estimate, and is marked so.
func count(n int64) string {
	if n > outboxstate.Counted {
		return "about " + strconv.FormatInt(n, 10)
	}
	return strconv.FormatInt(n, 10)
}
