package management

// Queue is what the plugin shows about a queue. Fields that it leaves out are empty.
type Queue struct {
	Name      string         `json:"name"`
	Type      string         `json:"type"`
	State     string         `json:"state"`
	Durable   bool           `json:"durable"`
	Messages  int64          `json:"messages"`
	Consumers int            `json:"consumers"`
	Members   []string       `json:"members"` // nodes that have a copy
	Online    []string       `json:"online"`
	Arguments map[string]any `json:"arguments"`
	Policy    string         `json:"policy"`
	Effective map[string]any `json:"effective_policy_definition"`
	Limit     any            `json:"delivery_limit"` // what counts, since version 4: a number or "unlimited"
}

// Exchange is what the plugin shows about an exchange.
type Exchange struct {
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
}

// Node is what the plugin shows about a node.
type Node struct {
	Name        string `json:"name"`
	Running     bool   `json:"running"`
	MemoryAlarm bool   `json:"mem_alarm"`
	DiskAlarm   bool   `json:"disk_free_alarm"`
}

// Number returns a number that a policy or an argument sets for the queue.
func (q *Queue) Number(name string) (float64, bool) {
	for _, from := range q.settings(name) {
		if n, ok := from.(float64); ok {
			return n, true
		}
	}
	return 0, false
}

// Text returns a text that a policy or an argument sets for the queue, and "" if none does.
func (q *Queue) Text(name string) string {
	for _, from := range q.settings(name) {
		if text, ok := from.(string); ok {
			return text
		}
	}
	return ""
}

// DeliveryLimit returns after how many failed deliveries the broker drops a message, and false if it never does.
func (q *Queue) DeliveryLimit() (float64, bool) {
	limit, ok := q.Limit.(float64)
	if q.Limit == nil {
		limit, ok = q.Number("delivery-limit")
	}
	return limit, ok && limit >= 0
}

func (q *Queue) settings(name string) [2]any {
	return [2]any{q.Effective[name], q.Arguments["x-"+name]}
}
