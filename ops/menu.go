package ops

// Menu has the numbers of a menu, for pages that lead to lists. A number above [Counted] means that there are more.
type Menu struct {
	// Stuck is the number of things that [View.Stuck] lists.
	Stuck int
	// DeadOutbox and DeadInbox are the numbers of dead letters, and Delayed of delayed events.
	DeadOutbox, DeadInbox, Delayed int
	// UnknownSteps is the number of steps of requests that wait for an operator.
	UnknownSteps int
	// TenantsPaused and ConsumersPaused are the numbers of paused tenants and consumers.
	TenantsPaused, ConsumersPaused int
}

// Dead is the number of dead letters in both boxes.
func (m *Menu) Dead() int { return m.DeadOutbox + m.DeadInbox }
