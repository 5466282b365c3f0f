package delayed

// ListDelayed is the statement of [Events.List].
const ListDelayed = listDelayed
