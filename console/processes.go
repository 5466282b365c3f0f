package console

import "github.com/oncebox/oncebox/ops/processes"

// processesView is the data of the page of the processes.
type processesView struct {
	Processes []processes.Process
	// Mixed has a sentence for each service that runs in several versions.
	Mixed []string
}

// showProcesses shows which processes run what, and what keeps them from it.
func showProcesses(v *visit) error {
	list, err := processes.List(v.Context(), v.db, v.cfg.Outbox, v.cfg.Inbox)
	if err != nil {
		return err
	}
	groups, err := v.view().Failures().List(v.Context())
	if err != nil {
		return err
	}
	processes.AddFailures(list, groups)
	return v.show("processes", "Processes", &processesView{list, processes.Mixed(list)})
}
