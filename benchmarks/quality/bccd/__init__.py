"""Blood cells: which loss finds them best?"""
