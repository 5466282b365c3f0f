package a

func (s *Store) M7() {}
