package status

import (
	"cmp"
	"strings"
	"time"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/ops/processes"
)

// ProcessItem is a process that runs parts of the service. Alive is false for a process that has vanished within the last day. What is not known of a
// process that was not started by App.Run is left out.
type ProcessItem struct {
	Name      string     `json:"name"`
	Alive     bool       `json:"alive"`
	Runs      []string   `json:"runs"`
	Lanes     int        `json:"lanes"`
	Consumers []string   `json:"consumers"`
	Service   string     `json:"service,omitempty"`
	Version   string     `json:"version,omitempty"`
	Library   string     `json:"library,omitempty"`
	Broker    string     `json:"broker,omitempty"`
	BeganAt   *time.Time `json:"began_at,omitempty"`
	SeenAt    *time.Time `json:"seen_at,omitempty"`
	// Error is why the broker takes nothing from the process, or why a consumer has no connection, and Since when that began.
	Error string     `json:"error,omitempty"`
	Since *time.Time `json:"error_since,omitempty"`

	trouble string // both in words
}

func processOf(p *processes.Process) ProcessItem {
	item := ProcessItem{
		Name: p.Name, Alive: p.Alive, Runs: append([]string{}, p.Parts...), Lanes: p.Lanes, Consumers: []string{}, Service: p.Service, Version: p.Version,
		Library: p.Library, Broker: p.Broker, BeganAt: pointer(p.BeganAt), SeenAt: pointer(p.SeenAt),
		Error: p.Error, Since: pointer(p.Since), trouble: p.Trouble(),
	}
	for n := range p.Consumers {
		item.Consumers = append(item.Consumers, p.Consumers[n].Consumer)
	}
	return item
}

// pointer returns nil for the zero time.
func pointer(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// processes returns a row for each process.
func (i *Item) processes() [][]string {
	if len(i.Processes) == 0 {
		return nil
	}
	rows := [][]string{{"PROCESS", "RUNS", "VERSION", "SINCE", "SEEN", "TROUBLE"}}
	for n := range i.Processes {
		p := &i.Processes[n]
		seen := i.known(p.SeenAt)
		if !p.Alive {
			seen += ", vanished"
		}
		rows = append(rows, []string{
			cli.Short(p.Name, 40), strings.Join(p.Runs, ", "), cli.Short(cmp.Or(p.Version, "-"), 24), i.known(p.BeganAt), seen,
			cli.Short(cmp.Or(p.trouble, "-"), 80),
		})
	}
	return rows
}

// known returns how long ago a time was, "-" if it is not known.
func (i *Item) known(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return i.ago(*at)
}
